// Whether the GPUs of this node reach each other's memory, found out by copying a little between each two of them: where an IOMMU or PCIe's
// ACS stands between two GPUs, such copies hang or lose their bytes, though the driver says that they work. A process of its own copies and
// is killed when it does not come back, so that no GPU of the caller's hangs. Two versions, as device_query.h.
#pragma once
#include <string>

namespace spillway {

struct PeerReport {
  int gpus = 0;
  int reached = 0;      // of the ordered pairs of them: those between which the driver allows copies and the bytes came
  std::string problem;  // what went wrong between which two, or without GPUs that the driver hangs; empty: nothing did
  // Between all that are linked (by NVLink: the GPUs know each other's atomics, as none do over PCIe) the bytes came; there is such a pair.
  bool links_work = false;
};

/// Forks: before this process has used a GPU, and with no other thread that holds a lock. A copy hangs that takes longer than the
/// time-out; so does the driver that takes longer to find its GPUs and open them. Where nothing can be found out the report is empty.
PeerReport probe_peers(double timeout_s = 10, double start_s = 60);

}  // namespace spillway
