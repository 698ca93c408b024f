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
# # Capacity: what fills the disk, and when is it full?
#
# The messages are those of a real RocketMQ 5.3.3 broker over six days (`opening.py` says how to look at yours
# instead). Several brokers are counted as one. Change the two numbers below.

# %%
from datetime import timedelta

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Markdown
from opening import SIX_DAYS, open_messages

DISK = None  # bytes; None: three times what is there now
RETENTION = timedelta(hours=72)  # fileReservedTime
spark = open_messages(SIX_DAYS)

# %% [markdown]
# ## Which topic takes the disk?

# %%
topics = spark.sql(
    """
    SELECT topic, sum(messages) AS messages, sum(bytes) AS bytes, sum(body_bytes) AS body_bytes
      FROM storage_by_topic GROUP BY topic ORDER BY bytes DESC
    """
).toPandas()

shown = topics.head(12)
if len(topics) > len(shown):
    others = topics[len(shown) :].drop(columns="topic").sum()
    shown = pd.concat([shown, pd.DataFrame([{"topic": f"{len(topics) - len(shown)} others", **others}])])
figure, axes = plt.subplots(figsize=(9, 0.6 + 0.4 * len(shown)), layout="constrained")
axes.barh(shown.topic, shown.body_bytes / 1e6, color="#0072b2", label="bodies")
axes.barh(
    shown.topic,
    (shown.bytes - shown.body_bytes) / 1e6,
    left=shown.body_bytes / 1e6,
    color="#e69f00",
    label="heads, topics and properties",
)
axes.invert_yaxis()
axes.set(title="Commit log by topic", xlabel="MB")
axes.legend(frameon=False)
plt.show()

total, bodies = topics.bytes.sum(), topics.body_bytes.sum()
Markdown(
    f"`{topics.topic[0]}` holds {topics.bytes[0] / total:.0%} of the log's {total / 1e6:.1f} MB. "
    f"{1 - bodies / total:.0%} of all bytes are not bodies: {(total - bodies) / topics.messages.sum():.0f} "
    f"bytes a message "
    "for head, topic and properties (keys, tags and ids)."
)

# %% [markdown]
# ## When was it written?

# %%
hours = spark.sql(
    "SELECT hour, sum(bytes) AS bytes FROM storage_by_hour WHERE hour IS NOT NULL GROUP BY hour ORDER BY hour"
).toPandas()

figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.bar(hours.hour, hours.bytes / 1e3, width=1 / 24, align="edge", color="#009e73")
axes.set(title="Written by hour", ylabel="kB", xlabel="store time, UTC")
axes.tick_params(axis="x", rotation=20)
plt.show()

busiest = hours.loc[hours.bytes.idxmax()]
hours_in_all = (hours.hour.iloc[-1] - hours.hour.iloc[0]) / timedelta(hours=1) + 1
top = hours.bytes.nlargest(max(1, int(hours_in_all) // 10)).sum() / total
Markdown(
    f"In {len(hours)} of {hours_in_all:.0f} hours something was written. The busiest hour began at "
    f"{busiest.hour:%Y-%m-%d %H:%M} with {busiest.bytes / 1e3:.0f} kB; a tenth of the hours brought "
    f"{top:.0%} of all bytes."
)

# %% [markdown]
# ## When is the disk full, and what does retention change?
#
# A broker deletes whole segments that are older than `fileReservedTime`. Beside the log it keeps 20 bytes a message
# in a consume queue and 20 bytes a key in the index.

# %%
beside = spark.sql(
    """
    SELECT 20 * count_if(dispatched) AS queues, 20 * sum(size(keys) + if(uniq_key IS NULL, 0, 1)) AS index
      FROM messages
    """
).first()
log = hours.set_index("hour").bytes.asfreq("h", fill_value=0)
factor = 1 + (beside["queues"] + beside["index"]) / total
without = log.cumsum() * factor
kept = log.rolling(int(RETENTION / timedelta(hours=1)), min_periods=1).sum() * factor
rate = without.iloc[-1] / len(log)  # bytes an hour
disk = DISK or 3 * without.iloc[-1]
full = without.index[-1] + timedelta(hours=(disk - without.iloc[-1]) / rate)

figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
axes.plot(without.index, without / 1e6, color="#0072b2", label="nothing deleted")
axes.plot(
    [without.index[-1], full], [without.iloc[-1] / 1e6, disk / 1e6], "--", color="#0072b2", label="at the mean rate"
)
axes.plot(kept.index, kept / 1e6, color="#009e73", label=f"kept for {RETENTION / timedelta(hours=1):.0f} h")
axes.axhline(disk / 1e6, color="#cc79a7", label="disk")
axes.set(title="Log, consume queues and index on disk", ylabel="MB", xlabel="store time, UTC", ylim=(0, None))
axes.tick_params(axis="x", rotation=20)
axes.legend(frameon=False)
plt.show()

Markdown(
    f"Queues and index add {factor - 1:.0%} to the log. At the mean rate of {rate * 24 / 1e6:.2f} MB a day a disk of "
    f"{disk / 1e6:.1f} MB is full on {full:%Y-%m-%d}. Kept for {RETENTION / timedelta(hours=1):.0f} hours, "
    f"no more than "
    f"{kept.max() / 1e6:.2f} MB are needed at any time ({kept.idxmax():%Y-%m-%d %H:%M}), {kept.max() / disk:.0%} of it."
)
