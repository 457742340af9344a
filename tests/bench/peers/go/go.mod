module peer
go 1.19
