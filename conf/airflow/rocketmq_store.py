"""Airflow 3: every night what is new in a broker's store goes into the Delta table, and the store is checked.

Exit code 1 of ``verify`` (differences) fails its task, as any other code but 0 does; a load that is tried again adds
each message once. Needs apache-airflow-providers-standard; the worker runs where the store can be read.
"""

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

STORE = "--store /data/rocketmq/store --broker-conf /etc/rocketmq/broker.conf"
RETRIES = {"retries": 2, "retry_delay": timedelta(minutes=10), "execution_timeout": timedelta(hours=6)}

with DAG(
    "rocketmq_store",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,  # never two loads of one broker at a time
    default_args=RETRIES,
):
    load = BashOperator(
        task_id="load",
        bash_command="/opt/rocketmq-store-spark/spark-submit.sh --master local[2] "
        f"load {STORE} --table /data/warehouse/messages --cluster main --broker broker-a",
    )
    verify = BashOperator(
        task_id="verify",
        bash_command="/opt/rocketmq-store-spark/spark-submit.sh --master local[2] "
        f"verify {STORE} --metrics /var/lib/node_exporter/textfile/rocketmq-store.prom",
    )
    load >> verify
