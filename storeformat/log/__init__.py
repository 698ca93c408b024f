"""The commit log: how segments hold records, and which bytes are records.

``segments``    segments, the step from one record in them to the next, record certificates, splits
``chain_walk``  a segment read block by block: its records from a position on, the search for certified ones
``chain``       what the sizes prove, from the reports of all splits
``record_ref``  a record's time and queue position
``dledger``     the entries of a DLedger group
``log_end``     the end of a log that a broker is writing
"""
