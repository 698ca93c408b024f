"""What fills a table, and what is odd about it.

==========================  ===========================================================================================
``report``                  the job
``facts``                   asks the table through ``views`` and ``functions``, whose SQL is in ``sql/``
``page``, ``plots``         one HTML file for people
==========================  ===========================================================================================
"""
