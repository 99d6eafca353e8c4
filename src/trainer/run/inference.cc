#include "trainer/run/inference.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/node/working.h"
#include "trainer/run/run_on_ranks.h"
#include "trainer/run/start.h"
#include "trainer/settings/given.h"
#include "trainer/settings/pipeline_wish.h"

namespace spillway::trainer {

Inference::Inference(Command command, const RanksConfig& config, const Peers& peers)
    : command_(command), config_(config), peers_(peers), source_(find_trained_model(config.model, config.checkpoint)) {
  if (!source_.has_weights) {
    throw Error(
        ErrorCode::usage,
        fmt::format("[{}] {} has no weights: give a run folder, a checkpoint or a folder with model.safetensors or pytorch_model.bin",
                    info(command).name, config.model));
  }
  if (config.adapter) take_adapter(source_, *config.adapter);
  check_stages(config);
  mesh_ = {static_cast<int>(config.data_ranks()), static_cast<int>(config.pipeline_stages)};
}

void Inference::open(const Settings& settings, Facts facts, const Workload& work, Messages& messages) {
  facts.insert(facts.begin(), {this_program(),
                               {"weights in --model", source_.folder->string()},
                               {"adapter", source_.adapter ? source_.adapter->string() : "none"}});
  check_same_flags(peers_, to_json(command_, settings), facts);
  const std::string id = peers_.from_first(fmt::format("{}-{}", info(command_).name, ::getpid()));
  const parallel::Pipeline pipeline{.ranks = mesh_.pipeline};
  const ChosenDevice device = device_on_ranks(config_, peers_);
  peers_.together([&] { session_.emplace(config_, device, source_, id, StateWishes(), peers_.place(), pipeline); });
  plan_on_ranks(peers_, *session_, *config_.placement, work);
  if (peers_.ranks() > 1) {
    if (!device.meeting.text.empty()) messages.log(device.meeting.text);
    for (const std::string& line : session_->choices()) messages.log(line);
  }
  if (const std::string note = session_->threads_note(config_.bind); !note.empty()) messages.log(note);
  if (const std::string notice = session_->threads_notice(); !notice.empty()) messages.warn(notice);
  for (const std::string& note : source_.notes) messages.log("model: " + note);
  if (peers_.communicator()) ends_ = split_mesh(*peers_.communicator(), mesh_);
  std::optional<Working> working(std::in_place, messages, [this] { return session_->taking(); });
  peers_.together([&] {
    session_->open(nullptr, &ends_);
    session_->give_up_scratch(false);
  });
  peers_.together([&] {
    session_->make_rank();
    working.reset();
    load_weights(session_->rank(), *weights_of(source_, session_->model()));
  });
  if (const std::string notice = session_->pinning_notice(); !notice.empty()) messages.warn(notice);
}

}  // namespace spillway::trainer
