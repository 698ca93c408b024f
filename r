# HELP rocketmq_store_inspect_ok 1 where the status is ok, 0 where not
# TYPE rocketmq_store_inspect_ok gauge
rocketmq_store_inspect_ok{store="/tmp/pytest-of-root/pytest-220/test_no_report_goes_into_a_sto1/store"} 0.0
# HELP rocketmq_store_inspect_exit_code What the process ended with
# TYPE rocketmq_store_inspect_exit_code gauge
rocketmq_store_inspect_exit_code{store="/tmp/pytest-of-root/pytest-220/test_no_report_goes_into_a_sto1/store"} 64.0
# HELP rocketmq_store_inspect_time_seconds When this was found out, in seconds since 1970
# TYPE rocketmq_store_inspect_time_seconds gauge
rocketmq_store_inspect_time_seconds{store="/tmp/pytest-of-root/pytest-220/test_no_report_goes_into_a_sto1/store"} 1.7959083114605284e+09
