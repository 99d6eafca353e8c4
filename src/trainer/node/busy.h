// Says whether the machine was too busy for a measurement: whether this process's threads got the processor time that they were ready to
// use, or had to wait because other programs used the cores. It is the kernel's own account of each thread (schedstat), so threads that
// sleep, wait for a disk or wait for each other do not count as held up. BusyWatch is for use by one thread.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "trainer/node/host.h"

namespace spillway::trainer {

/// ThreadTime holds the seconds that a thread ran, and those that it was ready to run and waited for a core.
struct ThreadTime {
  double ran_s = 0, waited_s = 0;
};

/// CpuSample is the account of one moment. All times count from the start of the thread or machine.
struct CpuSample {
  std::map<int, ThreadTime> threads;  // this process's threads, by id; empty if the kernel keeps no account
  double own_s = 0;                   // user seconds of this process, including its threads that have ended
  double cores_s = 0;                 // user and stolen seconds of all programs on the cores on which this process may run
};

/// Reads /proc/self/task/*/schedstat, /proc/self/stat and /proc/stat. Of the cores only user time counts: system time may be the kernel's
/// work for this process's own reads and writes.
CpuSample cpu_sample(const Host& host);
/// A function of type CpuClock takes a sample. Tests substitute their own.
using CpuClock = std::function<CpuSample()>;
inline CpuSample cpu_sample_here() { return cpu_sample({}); }

/// Contention says what happened between two samples.
struct Contention {
  /// obtained is the processor time that the threads got, as a share of the time that they were ready to run. others is the time that other
  /// programs used the same cores, as a share of the same.
  double obtained = 1, others = 0;
  double others_s = 0;  // the same time of other programs in seconds
  /// Returns whether times that were measured meanwhile are too long: the threads waited for more than a tenth of the time, and not only
  /// for each other. The kernel counts in ticks of 10 ms, so a few ticks of other programs mean nothing.
  bool busy() const { return obtained < 0.9 && others > 0.05 && others_s > 0.05; }
  /// Returns "its threads got 60 % of the processor time that they asked for, because other programs ran".
  std::string text() const;
};
Contention between(const CpuSample& before, const CpuSample& after);

/// BusyWatch watches from its construction on.
class BusyWatch {
 public:
  explicit BusyWatch(CpuClock clock) : clock_(std::move(clock)), begin_(clock_()) {}
  Contention so_far() const { return between(begin_, clock_()); }

 private:
  CpuClock clock_;
  CpuSample begin_;
};

}  // namespace spillway::trainer
