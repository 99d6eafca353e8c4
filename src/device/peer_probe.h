// Tests whether the GPUs of this node can reach each other's memory, by small copies between every two of them. If an IOMMU or
// PCIe ACS stands between two GPUs, such copies hang or lose data although the driver says that they work. A child process makes
// the copies and is killed if it hangs, so that no GPU of the caller hangs. One version is built with CUDA and one without.
#pragma once
#include <string>

namespace spillway {

struct PeerReport {
  int gpus = 0;
  int reached = 0;      // the number of ordered pairs of GPUs for which the driver allows copies and the data arrived
  std::string problem;  // what went wrong and between which GPUs, or that the driver hangs (then gpus is 0); empty if nothing went wrong
  // True if data arrived between at least two GPUs that NVLink connects, and no copy between such GPUs hung or lost bytes. NVLink is
  // recognised by native peer atomics, which PCIe lacks.
  bool links_work = false;
};

/// Runs the test in a forked process. Call probe_peers() before this process uses a GPU and while no other
/// thread holds a lock. A copy that takes longer than `timeout_s` counts as hanging, and so does a driver that
/// takes longer than `start_s` to find and open its GPUs. If nothing can be found out, the report is empty.
PeerReport probe_peers(double timeout_s = 10, double start_s = 60);

}  // namespace spillway
