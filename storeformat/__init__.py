"""The RocketMQ store on disk: numpy, pyarrow and the standard library; knows no Spark. A module holds one artefact.

===============================  =====================================================================================
what changes                     goes to
===============================  =====================================================================================
a record                         ``message`` (its layout), ``records`` (decoding), ``hosts``, ``messageid``; the loops
                                 over bytes to ``kernels``, twice: numpy is the reference
how records lie in the log       ``framing``, ``commitlog``, ``dledger``; where the log is ``logdirectories``, where it
                                 ends ``logend``
what a record becomes            ``dispatch``, ``multidispatch``; by which release's rules ``brokerversion``
queues                           ``consumequeue``, ``batchconsumequeue``, ``consumequeueext``, ``rocksdbqueue``
the index                        ``indexrows`` (entries before they have a file), ``indexfile``
the other files                  ``checkpoint``, ``topicsjson``, ``brokerconfig``; sizes and names ``layout``; what is
                                 not rebuilt ``storeparts``
what a broker answers            ``queuesearch``, ``batchqueuesearch``, ``indexfile``
what is wrong with a file        ``queuecheck``, ``indexalignment``, ``indexcheck``
what survives damage             ``resync``, ``damagedrecord``, ``survivors``, ``secondlook``, ``entrysurvey``; a log
                                 that a broker reads through again ``repair``
bytes in and out                 ``locations`` (names), ``files`` (opens everything), ``contents`` (data and holes of a
                                 file), ``outputs``, ``durable``, ``replacement``
what Java does                   ``javacompat``, ``javaproperties``
===============================  =====================================================================================

Format modules take buffers and columns (``arrays``) and return columns; what can go wrong is in ``errors``.
"""

__version__ = "0.1.0"
