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
       AND topic NOT LIKE '\\%%' AND topic NOT LIKE 'RMQ\\_SYS%'
    """
).toPandas()

figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
for colour, (topic, mine) in zip(COLOURS, latency.groupby("topic"), strict=False):
    shares(axes, mine.ms, color=colour, label=f"{topic} ({len(mine):,})")
axes.set(title="From born to stored", xlabel="milliseconds", ylabel="% of messages", xscale="symlog", xlim=(0, None))
axes.xaxis.set_major_formatter("{x:g}")
axes.legend(frameon=False, loc="lower right")
plt.show()

Markdown(
    f"Half of the {len(latency):,} messages were in the log within {latency.ms.median():.0f} ms, 99 % "
    f"within {latency.ms.quantile(0.99):.0f} ms; "
    f"the slowest took {latency.ms.max():,.0f} ms. {int((latency.ms < 0).sum())} were stored before they "
    f"were born, which would be a wrong clock."
)

# %% [markdown]
# ## How long do retries linger, and what is dead?

# %%
retries = spark.sql("SELECT * FROM retry_ageing ORDER BY consumer_group, reconsume_times").toPandas()
groups = list(dict.fromkeys(retries.consumer_group))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for size, colour, group in zip(range(12, 0, -3), COLOURS, groups, strict=False):
    mine = retries[(retries.consumer_group == group) & (retries.kind == "retry")]
    axes[0].plot(mine.reconsume_times, mine.messages, "o-", markersize=size, color=colour, label=group)
    axes[1].plot(mine.reconsume_times, mine.median_seconds_since_born, "o-", markersize=size, color=colour)
axes[0].set(title="Messages at each retry", xlabel="retry", ylabel="messages", ylim=(0, None))
axes[1].set(title="Age at each retry (median)", xlabel="retry", ylabel="seconds since born", ylim=(0, None))
for one in axes:
    one.set_xticks(sorted(set(retries[retries.kind == "retry"].reconsume_times)))
axes[0].legend(frameon=False)
plt.show()

dead = retries[retries.kind == "dlq"].groupby("consumer_group")[["messages", "oldest_age_seconds"]]
dead = dead.agg({"messages": "sum", "oldest_age_seconds": "max"})  # of all brokers
Markdown(
    "; ".join(
        f"`{group}` retried {mine[mine.kind == 'retry'].messages.sum():,} times and gave up on "
        f"{dead.messages.get(group, 0):,} messages"
        for group, mine in retries.groupby("consumer_group")
    )
    + (f". The oldest dead letter has waited for {dead.oldest_age_seconds.max():.0f} seconds." if len(dead) else ".")
)

# %% [markdown]
# ## What is in the log twice?

# %%
twice = spark.sql("SELECT topic, seconds_between, bodies FROM duplicates WHERE NOT one_batch").toPandas()
by_topic = spark.sql("SELECT * FROM duplicates_by_topic WHERE surplus > 0 ORDER BY surplus DESC").toPandas()

figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
for colour, (topic, mine) in zip(COLOURS, twice.groupby("topic"), strict=False):
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
axes.hist(came.late_ms, bins=np.arange(0, came.late_ms.max() + 11, 10) if len(came) else 1, color="#0072b2")
axes.set(title="How late delayed messages were", xlabel="milliseconds after they were due", ylabel="messages")
plt.show()

Markdown(
    f"None of {len(delays):,} delayed messages came."
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
for colour, (outcome, mine) in zip(COLOURS, ends.dropna(subset="seconds").groupby("outcome"), strict=False):
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
