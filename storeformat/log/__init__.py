"""The commit log: how records lie in segments, and which bytes are records.

``segments``      segments, and the splits in which they are read
``framing``       what leads from one record to the next, and what certifies one
``block_window``  a segment read block by block, and the search for certified records
``chain_walk``    decodes the records that follow each other from a place on
``chain``         what the sizes prove, from the reports of all splits
``record_ref``    what a record says of its time and place
``dledger``       the entries of a DLedger group
``log_end``       where a log ends that somebody is writing
"""
