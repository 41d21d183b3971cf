"""Take, commit and resume from snapshots, which outlive their driver.

::

    store = Checkpoints(path)
    snapshot = store.latest()                            # None: nothing was committed yet
    owner = store.take_over(resumes=snapshot, fingerprint=program_fingerprint(program, streams))
    snapshot_id = owner.snapshot_id(number)              # travels to the task that has the state ...
    file = store.write_state(snapshot_id, state)         # ... and writes it
    snapshot = owner.write(Epoch(number=number, end=ts, state=(file,)))
"""
