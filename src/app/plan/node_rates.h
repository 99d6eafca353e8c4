// The rates of this node for this very model, with what makes them doubtful: the model is timed where it will run (probe.h), the rest comes
// from bench's figures and a look at the disks. Takes memory for a moment. One thread calls.
#pragma once
#include "app/plan/cost_model.h"
#include "app/plan/disk_look.h"

namespace spillway::app {

struct NodeRates {
  Rates rates;
  std::string doubts;                     // "; …" each: what a prediction should be believed less for
  i64 process_bytes = 0, peak_bytes = 0;  // the process after timing, before anything of the plan is held; and at its most till then
};

/// What a rank computes with.
struct Computer {
  Device device;
  bool is_here = true;  // else a plan is made for a GPU that nobody can time
  int threads = 1;
  Tf32 tf32;
  i64 device_bytes = 0;  // that timing may take
};

/// `shares`: of the disks. Without training nothing is timed.
NodeRates measure_rates(const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration,
                        const DiskLook& disks, const std::vector<u32>& shares);

}  // namespace spillway::app
