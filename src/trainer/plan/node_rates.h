// Finds the rates of this node for the given model, and the reasons to doubt these rates. The model is
// timed on the device where it will run (probe.h). The other rates come from the figures of `spillway
// bench` and from a short probe of the disks. Allocates memory for a moment. For use by one thread.
#pragma once
#include "trainer/node/busy.h"
#include "trainer/plan/cost_model.h"
#include "trainer/plan/disk_look.h"

namespace spillway::trainer {

struct NodeRates {
  Rates rates;
  std::string doubts;  // one text that begins with "; " for each reason to trust a prediction less
  // bytes of this process's memory after timing, before the plan is allocated; and its peak until then
  i64 process_bytes = 0, peak_bytes = 0;
};

/// Computer describes the device and threads with which a rank computes.
struct Computer {
  Device device;
  bool is_here = true;  // false if the plan is for a GPU that is not in this machine and cannot be timed
  int threads = 1;
  Tf32 tf32;
  i64 device_bytes = 0;              // bytes of device memory that timing may use
  CpuClock clock = cpu_sample_here;  // says how busy the machine is
};

/// Measures the rates. `shares` holds the share of the bytes that each disk takes. Without training nothing is timed. If the machine was
/// busy, NodeRates::doubts says so, and a rate that bench has measured is used instead of the one that was measured now.
NodeRates measure_rates(const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration,
                        const DiskLook& disks, const std::vector<u32>& shares);

}  // namespace spillway::trainer
