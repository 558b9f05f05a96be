"""The machines without a cluster, and a store that crashes when told; defines nothing."""
