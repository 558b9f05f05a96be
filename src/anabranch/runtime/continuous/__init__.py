"""The trigger `continuous`: a program resident in one long task, and its driver.

The *resident task* reads, works and shows; the driver has the lease, the log and the commits. They
talk over one connection. Whatever ends the task, the driver starts another behind the last commit,
which takes the epochs that were cut since then again as they were.
"""
