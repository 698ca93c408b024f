"""What fills a table, and what is odd about it.

==========================  ===========================================================================================
``report``                  the job: without Spark where the table is plain and the user says nothing of Spark
``facts``                   asks the table through ``views`` and ``functions``, whose SQL is in ``sql/``
``plain_facts``             the same facts and plots of a plain table, by Arrow
``plain_checks``            the same checks, of the rows that ``plain_rows`` reads once: ``plain_outcomes`` has those
                            of retries, delays and transactions
``grouping``                what SQL's GROUP BY and window functions do, for Arrow tables
``page``, ``plots``         one HTML file for people
==========================  ===========================================================================================
"""
