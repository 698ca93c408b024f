# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Forensics: what happened in those minutes?
#
# A web shop's broker (real, RocketMQ 5.3.3; `shop/README.md` says what ran) had a bad time. All that is left is its
# commit log: who failed, from when to when, and what became of the messages?

# %%
import matplotlib.pyplot as plt
from IPython.display import Markdown
from opening import SHOP, open_messages

spark = open_messages(SHOP)
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999"]

# %% [markdown]
# ## What was written, five seconds at a time

# %%
writing = spark.sql(
    """
    SELECT timestamp_seconds(5 * (unix_seconds(store_timestamp) DIV 5)) AS at,
           CASE WHEN topic LIKE '%RETRY%' THEN 'retries' WHEN topic LIKE '%DLQ%' THEN 'dead letters'
                WHEN topic IN ('app-logs', 'orders', 'payments') THEN topic ELSE 'other' END AS kind,
           count(*) / 5 AS rate
      FROM messages GROUP BY ALL
    """
).toPandas()
rates = writing.pivot(index="at", columns="kind", values="rate").fillna(0)
rates = rates[["orders", "app-logs", "payments", "retries", "dead letters"]]

figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
for colour, kind in zip(COLOURS, rates.columns, strict=False):
    axes.step(rates.index, rates[kind], where="post", color=colour, label=kind)
axes.set(title="Messages a second", ylabel="messages/s", xlabel="store time, UTC", ylim=(0, None))
axes.legend(frameon=False, loc="upper right")
plt.show()

logs, retries = rates["app-logs"], rates["retries"]
Markdown(
    f"Two things stand out. `app-logs` rises to {logs.max():.0f} messages/s at {logs.idxmax():%H:%M:%S} "
    f"(median {logs.median():.1f}). "
    f"Later retries come up to {retries.max():.0f}/s at {retries.idxmax():%H:%M:%S}, while orders go on at "
    f"{rates.orders.median():.1f}/s."
)

# %% [markdown]
# ## Who failed, and from when to when?
#
# A retry is stored again under `%RETRY%group` with the time at which its message was born: first attempts that failed
# show when the trouble began and ended.

# %%
failed = spark.sql(
    """
    SELECT substring(topic, 8) AS consumer_group, born_timestamp AS born, uniq_key
      FROM messages WHERE topic LIKE '\\%RETRY\\%%' AND reconsume_times = 1
    """
).toPandas()
sent = spark.sql("SELECT born_timestamp AS born FROM messages WHERE topic = 'orders'").toPandas()
groups = failed.consumer_group.value_counts()

figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
for at, (colour, group) in enumerate(zip(COLOURS, groups.index, strict=False)):
    born = failed[failed.consumer_group == group].born
    axes.plot(born, [at] * len(born), "|", markersize=16, color=colour)
axes.set_yticks(range(len(groups)), groups.index)
axes.invert_yaxis()
axes.set(
    title="Messages whose first attempt failed",
    xlabel="time at which the message was born, UTC",
    xlim=(rates.index[0], rates.index[-1]),
)
axes.margins(y=0.3)
plt.show()

worst = groups.index[0]
trouble = failed[failed.consumer_group == worst].born
begin, end = trouble.min(), trouble.max()
in_window = sent[(sent.born >= begin) & (sent.born <= end)]
others = "; ".join(
    f"`{group}` failed {len(born)} times from {born.min():%H:%M:%S} to {born.max():%H:%M:%S}"
    for group, born in failed[failed.consumer_group != worst].groupby("consumer_group").born
)
Markdown(
    f"`{worst}` failed for {len(trouble)} of {len(in_window)} orders born from {begin:%H:%M:%S} to {end:%H:%M:%S}, and "
    f"for none before or after: it was down for {(end - begin).total_seconds():.0f} seconds. Others had a few bad "
    f"messages all the time: {others}."
)

# %% [markdown]
# ## What became of those messages?

# %%
fate = spark.sql(
    f"""
    SELECT uniq_key, max(reconsume_times) AS attempts, max_by(topic, commit_log_offset) AS last_topic,
           max(unix_millis(store_timestamp) - unix_millis(born_timestamp)) / 1000 AS seconds
      FROM messages
     WHERE topic IN ('%RETRY%{worst}', '%DLQ%{worst}') GROUP BY uniq_key
    """
).toPandas()
dead = fate.last_topic.str.startswith("%DLQ%")
saved = fate[~dead].attempts.value_counts().sort_index()

figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
labels = [f"{attempt} {'retry' if attempt == 1 else 'retries'}" for attempt in saved.index] + ["dead letter\nqueue"]
axes.bar(labels, [*saved, dead.sum()], color=[COLOURS[2]] * len(saved) + [COLOURS[3]])
axes.set(title=f"How far messages of {worst} had to go", ylabel="messages")
plt.show()

Markdown(
    f"{dead.sum()} of {len(fate)} messages ended in the dead letter queue, "
    f"{fate[dead].seconds.median():.0f} seconds after they were born (median). "
    f"The other {len(fate) - dead.sum()} were accepted at a retry, as the trouble ended in time for them."
)

# %% [markdown]
# ## One message, from its producer to the dead letter queue
#
# The unique key binds a message's records together, whatever topic they are in; traces tell what the clients saw.

# %%
key = fate[dead].sort_values("seconds").uniq_key.iloc[-1]
life = spark.sql(
    f"""
    SELECT store_timestamp AS at, topic, reconsume_times, queue_id, queue_offset, keys
      FROM messages WHERE uniq_key = '{key}' ORDER BY commit_log_offset
    """
).toPandas()
seconds = (life["at"] - life["at"].iloc[0]).dt.total_seconds()
lanes = list(dict.fromkeys(life.topic))

figure, axes = plt.subplots(figsize=(9, 0.9 + 0.5 * len(lanes)), layout="constrained")
axes.plot(seconds, [lanes.index(topic) for topic in life.topic], "o-", color="#0072b2", linewidth=0.8)
axes.set_yticks(range(len(lanes)), lanes)
axes.invert_yaxis()
axes.margins(y=0.2)
axes.set(title=f"The life of {life['keys'].iloc[0][0]}", xlabel="seconds after it was stored first")
plt.show()

Markdown(
    f"The order was stored {len(life)} times: once by its producer, "
    f"{int((life.topic == 'SCHEDULE_TOPIC_XXXX').sum())} times to wait for a retry, "
    f"{int((life.topic == f'%RETRY%{worst}').sum())} times to be tried again, and after "
    f"{seconds.iloc[-1]:.1f} seconds as a dead letter."
)
