// Lets a rank report to the process that started it (supervise.h) what it is doing, its last step, and the error with which it ends. The
// reports are in shared memory, so that they can still be read after the rank has died. Without a supervising process the report functions
// do nothing. Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "parallel/sockets/shared_memory.h"
#include "trainer/node/failure.h"

namespace spillway::trainer {

enum class RankPhase : int { starting, meeting, preparing, training, evaluating, generating };
const char* to_string(RankPhase phase);

/// Used by the supervisor: the shared memory with the reports of all ranks.
class RankReports {
 public:
  explicit RankReports(int ranks);
  /// Returns the value that the environment variable SPILLWAY_REPORT must have in the ranks' processes, which inherit descriptor().
  std::string variable() const;
  int descriptor() const { return memory_.descriptor(); }

  RankPhase phase(int rank) const;
  i64 step(int rank) const;  // the last step that the rank finished; 0: none yet
  /// The error that the rank ended with; its text is empty if the rank reported none.
  Failure failure(int rank) const;
  /// The log file of the rank's run; empty if it reported none.
  std::string log_file(int rank) const;
  void set_failure(int rank, const Failure& failure) const;

 private:
  parallel::SharedMemory memory_;
};

/// Used by a rank: these two store what the rank is doing and its last step.
void report_phase(RankPhase phase);
void report_step(i64 step);
/// Reports the absolute path of the run's log.txt. The supervisor appends to that file how the ranks ended.
void report_log_file(const std::string& path);
/// Reports the error that this rank ends with. Returns whether there is a supervisor, which then prints it.
bool report_failure(const Failure& failure);

}  // namespace spillway::trainer
