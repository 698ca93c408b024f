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
from datetime import timedelta

import matplotlib.pyplot as plt
from IPython.display import Markdown
from opening import SHOP, open_messages

spark = open_messages(SHOP)
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999"]

# %% [markdown]
# ## What was written, and when?

# %%
span = spark.sql("SELECT unix_seconds(max(store_timestamp)) - unix_seconds(min(store_timestamp)) FROM messages").first()
every = max(5, (span[0] or 0) // 300)  # seconds
writing = spark.sql(
    f"""
    SELECT timestamp_seconds({every} * (unix_seconds(store_timestamp) DIV {every})) AS at, topic,
           count(*) / {every} AS rate
      FROM messages WHERE store_timestamp IS NOT NULL GROUP BY ALL
    """
).toPandas()
own = writing[~writing.topic.str.match(r"%|SCHEDULE_TOPIC_XXXX|TBW102|(?i:rmq_sys_)")]
largest = own.groupby("topic").rate.sum().nlargest(3).index


def kind(topic):
    """Returns what a topic is drawn as."""
    for prefix, name in (("%RETRY%", "retries"), ("%DLQ%", "dead letters")):
        if topic.startswith(prefix):
            return name
    return topic if topic in largest else "other"


rates = writing.groupby(["at", writing.topic.map(kind)]).rate.sum().unstack(fill_value=0)
rates = rates.reindex(columns=[*largest, "retries", "dead letters"], fill_value=0)

figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
for colour, name in zip(COLOURS, rates.columns, strict=False):
    axes.step(rates.index, rates[name], where="post", color=colour, label=name)
axes.set(title=f"Messages a second, each {every} s", ylabel="messages/s", xlabel="store time, UTC", ylim=(0, None))
axes.legend(frameon=False, loc="upper right")
plt.show()

peaks = "; ".join(
    f"`{name}` rises to {rates[name].max():.3g} messages/s at {rates[name].idxmax():%Y-%m-%d %H:%M:%S} "
    f"(median {rates[name].median():.3g})"
    for name in rates.columns
    if rates[name].any()
)
Markdown(f"{peaks}.")

# %% [markdown]
# ## Who failed, and from when to when?
#
# A retry is stored again under `%RETRY%group` with the time at which its message was born: first attempts that failed
# show when the trouble began and ended.

# %%
spark.sql(
    """
    CREATE OR REPLACE TEMPORARY VIEW failures AS
    SELECT substring(topic, 8) AS consumer_group, properties['RETRY_TOPIC'] AS origin, born_timestamp AS born
      FROM messages WHERE startswith(topic, '%RETRY%') AND reconsume_times = 1 AND born_timestamp IS NOT NULL
    """
)
troubles = spark.sql(
    """
    WITH each AS (
      SELECT consumer_group, origin, count(*) AS failed, min(born) AS begin, max(born) AS end FROM failures GROUP BY ALL
    )
    SELECT each.*, (SELECT count(*) FROM messages
                     WHERE topic = origin AND born_timestamp >= begin AND born_timestamp <= end) AS sent
      FROM each ORDER BY failed DESC LIMIT 6
    """
).toPandas()
failed = spark.table("failures").toPandas()

figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
groups = list(dict.fromkeys(troubles.consumer_group))
for at, (colour, group) in enumerate(zip(COLOURS, groups, strict=False)):
    born = failed[failed.consumer_group == group].born
    axes.plot(born, [at] * len(born), "|", markersize=16, color=colour)
axes.set_yticks(range(len(groups)), groups)
axes.invert_yaxis()
axes.set(
    title="Messages whose first attempt failed",
    xlabel="time at which the message was born, UTC",
    xlim=(rates.index[0], rates.index[-1] + timedelta(seconds=int(every))),
)
axes.margins(y=0.3)
plt.show()

worst = groups[0] if groups else ""
Markdown(
    "; ".join(
        f"`{one.consumer_group}` failed for {one.failed} of {one.sent} messages of `{one.origin}` born from "
        f"{one.begin:%H:%M:%S} to {one.end:%H:%M:%S} ({(one.end - one.begin).total_seconds():.0f} seconds)"
        + (": it was down" if 1 < one.failed == one.sent else "")
        for one in troubles.itertuples()
    )
    or "No consumer has sent a message back."
)

# %% [markdown]
# ## What became of those messages?

# %%
fate = spark.sql(
    """
    SELECT uniq_key, max(reconsume_times) AS attempts,
           startswith(max_by(topic, (store_timestamp, commit_log_offset)), '%DLQ%') AS dead,
           max(unix_millis(store_timestamp) - unix_millis(born_timestamp)) / 1000 AS seconds
      FROM messages
     WHERE topic IN ('%RETRY%' || :worst, '%DLQ%' || :worst) AND uniq_key IS NOT NULL
     GROUP BY uniq_key ORDER BY dead, seconds
    """,
    args={"worst": worst},
).toPandas()
dead = fate[fate.dead.astype(bool)]
saved = fate.drop(dead.index).attempts.value_counts().sort_index()

figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
labels = [f"{attempt} {'retry' if attempt == 1 else 'retries'}" for attempt in saved.index] + ["dead letter\nqueue"]
axes.bar(labels, [*saved, len(dead)], color=[COLOURS[2]] * len(saved) + [COLOURS[3]])
axes.set(title=f"How far messages of {worst or 'consumers'} had to go", ylabel="messages")
plt.show()

Markdown(
    f"{len(dead)} of {len(fate)} messages ended in the dead letter queue"
    + (f", {dead.seconds.median():.0f} seconds after they were born (median)" if len(dead) else "")
    + f". The other {len(fate) - len(dead)} had no later retry in the log."
)

# %% [markdown]
# ## One message, from its producer to its end
#
# The unique key binds a message's records together, whatever topic they are in; traces tell what the clients saw.

# %%
life = spark.sql(
    """
    SELECT store_timestamp AS at, topic, coalesce(try_element_at(keys, 1), uniq_key) AS name
      FROM messages WHERE uniq_key = :key ORDER BY store_timestamp, commit_log_offset
    """,
    args={"key": "" if fate.empty else fate.uniq_key.iloc[-1]},  # a dead letter, if there is one
).toPandas()
seconds = (life["at"] - life["at"].min()).dt.total_seconds()
lanes = list(dict.fromkeys(life.topic))

figure, axes = plt.subplots(figsize=(9, 0.9 + 0.5 * max(len(lanes), 3)), layout="constrained")
axes.plot(seconds, [lanes.index(topic) for topic in life.topic], "o-", color="#0072b2", linewidth=0.8)
axes.set_yticks(range(len(lanes)), lanes)
axes.invert_yaxis()
axes.margins(y=0.2)
axes.set(title=f"The life of {', '.join(life.name[:1]) or 'no message'}", xlabel="seconds after it was stored first")
plt.show()

Markdown(
    "No message was tried again."
    if life.empty
    else f"The message was stored {len(life)} times: "
    f"{int((life.topic == 'SCHEDULE_TOPIC_XXXX').sum())} times to wait for a retry, "
    f"{int((life.topic == f'%RETRY%{worst}').sum())} times to be tried again, and after "
    f"{seconds.iloc[-1]:.1f} seconds {'as a dead letter' if len(dead) else 'for the last time'}."
)
