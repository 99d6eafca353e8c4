// StepAccounts measures how many bytes the steps of a run moved on this rank and how long their parts took, and compares
// both with the plan. The table of the comparison (audit.h) is printed at the end of the run. The trainer calls begin()
// and end() around each step, and settle() for deferred updates, so that every byte is counted. For use by one thread.
#pragma once
#include <vector>

#include "trainer/node/busy.h"
#include "trainer/record/audit.h"
#include "trainer/run/session.h"

namespace spillway::trainer {

class StepAccounts {
 public:
  explicit StepAccounts(Session& session) : session_(session), watch_(cpu_sample_here) {}

  /// begin() must be called right before the rank's step and end() right after it. `seconds` is the step's duration.
  void begin();
  StepSample end(double seconds);
  /// Executes the updates that the optimizer has deferred, and counts the bytes that this moves.
  void settle();

  /// Returns the bytes moved by all steps so far.
  const parallel::TierBytes& moved() const { return moved_; }
  /// Returns by how many bytes the measured traffic differs from the planned traffic: the sum of the
  /// absolute differences for each tier and direction. Must be called only when no update is deferred.
  i64 unplanned_bytes() const;
  const Audit& audit() const { return audit_; }
  /// Says whether other programs have held this process up since the run began.
  Contention contention() const { return watch_.so_far(); }
  /// Returns the audit's table. The result is empty before the first step.
  std::vector<AuditRow> audit_rows() const;

 private:
  Session& session_;
  parallel::TierBytes moved_before_, planned_before_, moved_, planned_;
  DiskUse disk_before_;
  Audit audit_;
  BusyWatch watch_;
};

}  // namespace spillway::trainer
