// Inference loads a trained model and runs its forward pass, on one rank or sharded over several ranks. The commands generate and
// evaluate use it. All ranks make the same calls in the same order.
#pragma once
#include <optional>
#include <string>

#include "trainer/ranks/peers.h"
#include "trainer/ranks/same_flags.h"
#include "trainer/run/session.h"
#include "trainer/settings/config.h"
#include "trainer/settings/option.h"

namespace spillway::trainer {

class Inference {
 public:
  /// Finds the model. Throws Error(usage) if the model has no weights, or if --ranks does not divide evenly over the pipeline stages.
  Inference(Command command, const RanksConfig& config, const Peers& peers);

  const ModelSource& source() const { return source_; }
  /// Returns the mesh of data-parallel ranks and pipeline stages that --ranks and --pipeline-stages describe.
  const parallel::Mesh& mesh() const { return mesh_; }

  /// Collective. Makes the plan, allocates the memory and loads the weights. `settings` are the command's
  /// options. The settings and `facts` (same_flags.h) must be equal on all ranks, which is checked.
  void open(const Settings& settings, Facts facts, const Workload& work, Messages& messages);
  parallel::Rank& rank() { return session_->rank(); }

 private:
  const Command command_;
  const RanksConfig& config_;
  const Peers& peers_;
  ModelSource source_;
  parallel::Mesh mesh_;
  parallel::MeshEnds ends_;
  std::optional<Session> session_;
};

}  // namespace spillway::trainer
