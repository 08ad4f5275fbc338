"""Work that is spread over processes of a cluster: what an item is, and how a worker of the cluster runs one."""
