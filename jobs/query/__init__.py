"""Questions to one store.

====================  =================================================================================================
``query``             the job: one function a kind of question
``offline_store``     what a broker looks up: records by offset, queues, the index; read without Spark
``explain``           why the index does not find a key
``inspection``        the job ``inspect``: what is in this log
====================  =================================================================================================
"""
