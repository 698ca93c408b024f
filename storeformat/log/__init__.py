"""The commit log: how segments hold records, and which bytes are records.

``segments``      segments, and the splits in which they are read
``framing``       the step from one record to the next, and record certificates
``block_window``  a segment read block by block, and the search for certified records
``chain_walk``    decodes consecutive records from a position
``chain``         what the sizes prove, from the reports of all splits
``record_ref``    a record's time and queue position
``dledger``       the entries of a DLedger group
``log_end``       the end of a log that a broker is writing
"""
