/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml_old.c - a libnvidia-ml.so.1 that lacks what is needed. */
int nvmlInit_v2(void);

__attribute__((visibility("default"))) int nvmlInit_v2(void)
{
    return 0;
}
