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
# # Health: latency, retries, duplicates, delays, transactions
#
# What a broker's log says about the clients around it. The messages are those of a small web shop on a real RocketMQ
# 5.3.3 broker (`shop/README.md`; `opening.py` says how to look at yours instead).

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from opening import SHOP, open_messages

spark = open_messages(SHOP)
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999"]


def by_largest(frame, column):
    """Returns the rows of each of the most frequent values, with a colour."""
    names = frame[column].value_counts().index
    return [(colour, name, frame[frame[column] == name]) for colour, name in zip(COLOURS, names, strict=False)]


def shares(axes, values, **style):
    """Draws which share of the values is at most x."""
    values = np.sort(np.asarray(values, dtype=float))
    axes.step([values[0], *values], np.arange(len(values) + 1) / len(values) * 100, where="post", **style)


# %% [markdown]
# ## How long from the producer to the log?

# %%
latency = spark.sql(
    """
    SELECT topic, unix_millis(store_timestamp) - unix_millis(born_timestamp) AS ms
      FROM messages
     WHERE reconsume_times = 0 AND properties['DELAY'] IS NULL AND properties['TRAN_MSG'] IS NULL
       AND born_timestamp IS NOT NULL AND store_timestamp IS NOT NULL
       AND NOT startswith(topic, '%') AND NOT startswith(lower(topic), 'rmq_sys')
    """
).toPandas()

figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
for colour, topic, mine in by_largest(latency, "topic"):
    shares(axes, mine.ms, color=colour, label=f"{topic} ({len(mine):,})")
axes.set(title="From born to stored", xlabel="milliseconds", ylabel="% of messages", xscale="symlog", xlim=(0, None))
axes.xaxis.set_major_formatter("{x:g}")
axes.legend(frameon=False, loc="lower right")
plt.show()

Markdown(
    "There are none."
    if latency.empty
    else f"Half of the {len(latency):,} messages were in the log within {latency.ms.median():.0f} ms, 99 % "
    f"within {latency.ms.quantile(0.99):.0f} ms; "
    f"the slowest took {latency.ms.max():,.0f} ms. {int((latency.ms < 0).sum())} were stored before they "
    f"were born, which would be a wrong clock."
)

# %% [markdown]
# ## How long do retries linger, and what is dead?

# %%
retries = spark.sql(
    """
    SELECT consumer_group, kind, reconsume_times, sum(messages) AS messages,
           max(median_seconds_since_born) AS seconds, max(oldest_age_seconds) AS oldest
      FROM retry_ageing GROUP BY ALL ORDER BY consumer_group, reconsume_times
    """
).toPandas()
groups = retries.groupby("consumer_group").messages.sum().nlargest(4).index

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for size, colour, group in zip(range(12, 0, -3), COLOURS, groups, strict=False):
    mine = retries[(retries.consumer_group == group) & (retries.kind == "retry")]
    axes[0].plot(mine.reconsume_times, mine.messages, "o-", markersize=size, color=colour, label=group)
    axes[1].plot(mine.reconsume_times, mine.seconds, "o-", markersize=size, color=colour)
axes[0].set(title="Messages at each retry", xlabel="retry", ylabel="messages", ylim=(0, None))
axes[1].set(
    title="Age at each retry (median of the slowest topic)", xlabel="retry", ylabel="seconds since born", ylim=(0, None)
)
for one in axes:
    one.set_xticks(sorted(set(retries[retries.kind == "retry"].reconsume_times)))
axes[0].legend(frameon=False)
plt.show()

counts = retries.pivot_table(index="consumer_group", columns="kind", values="messages", aggfunc="sum", fill_value=0)
dead = retries[retries.kind == "dlq"]
Markdown(
    "No consumer has sent a message back."
    if retries.empty
    else "; ".join(
        f"`{group}` retried {counts.loc[group].get('retry', 0):,} times and gave up on "
        f"{counts.loc[group].get('dlq', 0):,} messages"
        for group in groups
    )
    + (f". The oldest dead letter has waited for {dead.oldest.max():.0f} seconds." if len(dead) else ".")
)

# %% [markdown]
# ## What is in the log twice?

# %%
twice = spark.sql("SELECT topic, seconds_between, bodies FROM duplicates WHERE NOT one_batch").toPandas()
by_topic = spark.sql("SELECT * FROM duplicates_by_topic WHERE surplus > 0 ORDER BY surplus DESC").toPandas()

figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
for colour, topic, mine in by_largest(twice, "topic"):
    shares(axes, mine.seconds_between * 1000, color=colour, label=f"{topic} ({len(mine)})")
axes.set(title="Time from the first copy to the last", xlabel="milliseconds", ylabel="% of duplicates", xlim=(0, None))
axes.legend(frameon=False, loc="upper left")
plt.show()

first = by_topic.iloc[0] if len(by_topic) else None
Markdown(
    "No unique key is there twice."
    if first is None
    else f"{first.surplus} of the {first.messages:,} messages in `{first.topic}` ({first.surplus_share:.1%}) are "
    f"copies under a unique key that had been stored, "
    f"{first.median_seconds_between * 1000:.0f} ms later (median). {int((twice.bodies > 1).sum())} of them "
    f"have another body: "
    "consumers must recognise a key they have seen."
)

# %% [markdown]
# ## Are delayed messages on time?

# %%
delays = spark.sql("SELECT level, late_ms, state FROM delays").toPandas()
came = delays[delays.state == "delivered"]

figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
axes.hist(came.late_ms, bins=50, color="#0072b2")
axes.set(title="How late delayed messages were", xlabel="milliseconds after they were due", ylabel="messages")
plt.show()

Markdown(
    "No delayed message came."
    if came.empty
    else f"{len(came):,} of {len(delays):,} delayed messages came ({int((delays.state == 'overdue').sum())} are "
    f"overdue), between {came.late_ms.min()} and "
    f"{came.late_ms.max()} ms after they were due, {(came.late_ms <= 20).mean():.0%} within 20 ms. "
    "The broker looks at each level every 100 ms: that much lateness is to be expected."
)

# %% [markdown]
# ## How do transactions end?

# %%
ends = spark.sql("SELECT outcome, checks, seconds FROM transactions").toPandas()
counts = ends.outcome.value_counts()

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
axes[0].bar(counts.index, counts, color=COLOURS[: len(counts)])
axes[0].set(title="Outcomes", ylabel="transactions")
for colour, outcome, mine in by_largest(ends.dropna(subset="seconds"), "outcome"):
    shares(axes[1], mine.seconds, color=colour, label=outcome)
axes[1].set(title="Time to a decision", xlabel="seconds", ylabel="% of transactions", xlim=(0, None))
axes[1].legend(frameon=False, loc="lower right")
plt.show()

checked = ends[ends.checks > 0]
Markdown(
    "There are none."
    if ends.empty
    else f"{counts.get('committed', 0) / len(ends):.0%} of {len(ends)} transactions were committed, "
    f"{counts.get('rolled back', 0) / len(ends):.0%} rolled back, and "
    f"{counts.get('open', 0)} were open when the log ended. For {len(checked)} the broker had to ask, "
    f"{0 if checked.empty else checked.checks.max()} times at most."
)

# %% [markdown]
# ## Is anything missing?

# %%
gaps = spark.sql("SELECT sum(missing) AS missing, count(*) AS places FROM queue_gaps").first()
steps = spark.table("clock_steps").count()
queues = spark.table("storage_by_queue").count()
Markdown(
    f"In {queues} queues {gaps['missing'] or 0} messages are missing, at {gaps['places']} places; the "
    f"broker's clock went back {steps} times."
)
