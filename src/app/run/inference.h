// A trained model at work without training, on one rank or sharded over several: what generate and evaluate share. All ranks make the same
// calls.
#pragma once
#include <optional>
#include <string>

#include "app/flags/config.h"
#include "app/flags/option.h"
#include "app/ranks/peers.h"
#include "app/ranks/same_flags.h"
#include "app/run/session.h"

namespace spillway::app {

class Inference {
 public:
  /// Finds the model. Throws Error(usage) where it has no weights, or the ranks are not as many for each stage.
  Inference(Command command, const RanksConfig& config, const Peers& peers);

  const ModelSource& source() const { return source_; }
  /// As --ranks and --pipeline-stages have it.
  const parallel::Mesh& mesh() const { return mesh_; }

  /// Plans, takes the memory and loads the weights, all ranks together. `settings`: the command's; with `facts` the same on all ranks.
  void open(const Settings& settings, Facts facts, const Workload& work, Console& console);
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

}  // namespace spillway::app
