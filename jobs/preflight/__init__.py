"""Is it safe to start a broker on a store? What its start would lose, and a cure for each loss.

``stopped_store`` reads the store, the rules judge it, ``preflight`` collects their reasons; what they say is in
``rules.ini``. Nothing is changed, and Spark is not started.

======================  =====================================================================================
``preflight``           the job; all rules, in the order in which a start would meet them; copies of the log
``stopped_store``       all that the rules look at; reasons, and the answer that they add up to
----------------------  -------------------------------------------------------------------------------------
``files_and_space``     files as such, space, and what the broker deletes soon after its start
``configuration``       broker.conf: places, settings not taken, storeType; files and databases of ``config/``
``queues_and_log``      queues against the log, and how the log ends
``offsets_and_timers``  offsets outside of their queues, timers, a controller's epochs
======================  =====================================================================================
"""
