"""The network driver: machines over real disks, sockets and servers."""
