// What a rank tells the process that started it (supervise.h), on memory that both see, so that it is there when the rank is not any more:
// what it is doing, its last step, and the error it ends with. Without such a process all of it does nothing. Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "app/node/failure.h"
#include "parallel/sockets/shared_memory.h"

namespace spillway::app {

enum class RankPhase : int { starting, meeting, preparing, training, evaluating, generating };
const char* to_string(RankPhase phase);

/// The supervisor's end.
class RankReports {
 public:
  explicit RankReports(int ranks);
  /// For the environment of rank `rank`, whose process inherits descriptor().
  std::string variable() const;
  int descriptor() const { return memory_.descriptor(); }

  RankPhase phase(int rank) const;
  i64 step(int rank) const;  // 0: none yet
  /// With an empty text: it said nothing.
  Failure failure(int rank) const;
  /// Of a run, where it keeps one; else empty.
  std::string log_file(int rank) const;
  void set_failure(int rank, const Failure& failure) const;

 private:
  parallel::SharedMemory memory_;
};

/// The rank's end.
void report_phase(RankPhase phase);
void report_step(i64 step);
/// Absolute: where whoever started the ranks writes what becomes of them.
void report_log_file(const std::string& path);
/// Whether somebody will print it.
bool report_failure(const Failure& failure);

}  // namespace spillway::app
