// SPDX-License-Identifier: Apache-2.0

package dtp

import (
	"math"
	"testing"
	"time"
)

func TestTimesBecomeMillisecondsWithoutWrapping(t *testing.T) {
	for d, want := range map[time.Duration]int32{
		-1: -1, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3600000,
		1000 * time.Hour: math.MaxInt32, math.MaxInt64: math.MaxInt32,
	} {
		if got := milliseconds(d); got != want {
			t.Errorf("%v: %d, not %d", d, got, want)
		}
	}
}
