"""Order kept across parallel channels: splitters number rows, mergers put them back in order.

Pure and deterministic machines without clock, threads or files. What travels is a *run* of rows,
not a row, so that the cost of order is paid once a run.

Where this earns its keep: in the channels of the continuous engine, where runs arrive at any time
and a row is to leave as soon as it is certain that nothing before it can still come. In epoch
cycles all runs are there when merging begins, and a merge is a k-way merge of sorted runs.

    all rows come out, no state     round-robin            `RoundRobinSplitter`, `RoundRobinMerger`
    all rows come out, keyed state  sequence numbers       `KeyedSplitter`, `SequenceMerger`
    rows may be dropped or several  numbers and pulses     either splitter, `PulseMerger`
    between two parallel regions    numbers and pulses     `ShuffleSplitter`, `ShuffleMerger`

After Schneider et al. 2012, "Auto-Parallelizing Stateful Distributed Streaming Applications",
section 4 and table 1; several rows of one row are beyond it.
"""
