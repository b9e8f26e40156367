module libdtp

go 1.19
