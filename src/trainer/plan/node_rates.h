// Finds the rates of this node for the given model, and the reasons to doubt them. The model is timed on the device where it will run
// (probe.h). The other rates come from the figures of `spillway bench` and from a short probe of the disks. Allocates memory for a moment.
// One thread calls.
#pragma once
#include "trainer/plan/cost_model.h"
#include "trainer/plan/disk_look.h"

namespace spillway::trainer {

struct NodeRates {
  Rates rates;
  std::string doubts;                     // one "; …" for each reason to trust a prediction less
  i64 process_bytes = 0, peak_bytes = 0;  // the process's memory after timing, before the plan is allocated; its peak until then
};

/// The device and threads that a rank computes with.
struct Computer {
  Device device;
  bool is_here = true;  // false if the plan is for a GPU that cannot be timed here
  int threads = 1;
  Tf32 tf32;
  i64 device_bytes = 0;  // memory that timing may use
};

/// Measures the rates. `shares` are the shares of the bytes that the disks take. Without training nothing is timed.
NodeRates measure_rates(const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration,
                        const DiskLook& disks, const std::vector<u32>& shares);

}  // namespace spillway::trainer
