// What the steps of a run moved and spent their time on, on this rank, beside what its plan said: measured around each step, added up, and
// audited at the end. The trainer brackets each step, and settles through it, so that no byte goes uncounted. One thread.
#pragma once
#include <vector>

#include "app/record/audit.h"
#include "app/run/session.h"

namespace spillway::app {

class StepAccounts {
 public:
  explicit StepAccounts(Session& session) : session_(session) {}

  /// Right before the rank's step, and right after it; `seconds`: it took.
  void begin();
  StepSample end(double seconds);
  /// Executes what the optimizer has deferred, and counts what that moved.
  void settle();

  /// By all steps so far.
  const parallel::TierBytes& moved() const { return moved_; }
  /// Of those beside the plan, whichever way they went, too many or too few. Settled.
  i64 unplanned_bytes() const;
  const Audit& audit() const { return audit_; }
  /// Empty before the first step.
  std::vector<AuditRow> audit_rows() const;

 private:
  Session& session_;
  parallel::TierBytes moved_before_, planned_before_, moved_, planned_;
  DiskUse disk_before_;
  Audit audit_;
};

}  // namespace spillway::app
