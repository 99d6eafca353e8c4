#include "trainer/train/train_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "optim/isa.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/plan/freeze.h"
#include "trainer/run/resolve.h"
#include "trainer/settings/option.h"
#include "trainer/settings/text.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::trainer {
namespace {

std::string kept_as(kernels::WeightFormat base) {
  return base == kernels::WeightFormat::plain ? "" : ", weight matrices kept in " + to_string(base);
}

std::string precision_text(const TrainConfig& config) {
  if (config.precision == Precision::fp8) return "bf16";  // what is stored
  return find_option(Command::train, "precision")->field.get(Settings(config))->front();
}

// Names the data files, the tokenizer, and the rows of the training and the validation data.
std::string data_text(const Session& session, const TrainConfig& config, const RunData& data) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> paths = weighted_paths(config.data).paths;
  const size_t more = paths.size() > kNamed ? paths.size() - kNamed : 0;
  const bool texts = any_text(paths);
  paths.resize(paths.size() - more);
  std::string text = paths.empty() ? "made by the program" : fmt::format("{}", fmt::join(paths, ", "));
  if (more > 0) text += fmt::format(" and {} more", more);
  const nn::Sequential& model = session.model();
  if (model.reads_images()) {
    text += fmt::format(", {} images of {}", data.training->windows(), to_string(model.image_CHW));
  } else if (!model.reads_tokens()) {
    text += fmt::format(", {} rows", data.training->windows());
  } else {
    const auto& tokenizer = session.source().tokenizer;
    if (texts) text += tokenizer ? ", tokenizer " + tokenizer->string() : ", bytes as tokens";
    text += fmt::format(", {} rows of {} tokens", data.training->windows(), *config.sequence_length);
  }
  if (!data.held_out) return text + "; no validation";
  return text + fmt::format("; validation: {} {}", data.held_out->validation_windows(), model.reads_images() ? "images" : "rows");
}

}  // namespace

void note_machine(Progress& progress, const ChosenDevice& device, const std::string& attention, Messages& messages) {
  std::string here = device.device.is_cuda() ? device.model : fmt::format("cpu, {}", optim::to_string(optim::resolve(optim::Isa::best)));
  if (!attention.empty()) here += ", " + attention;
  if (!progress.made_with.empty() && progress.made_with != here) {
    messages.warn(
        fmt::format("the checkpoint was made with another instruction set or GPU{} (made with {}, now {}): the last bits of the numbers "
                    "may differ from here on",
                    attention.empty() ? "" : ", or with other cuDNN engines", progress.made_with, here));
  }
  progress.made_with = here;
}

std::string opening_text(const Session& session, const TrainConfig& config, const RunData& data, const std::string& weights) {
  const i64 frozen = frozen_elems(session.model());
  const std::string of_them = frozen ? fmt::format(" ({} of them frozen{})", frozen, kept_as(session.source().config.base_weights)) : "";
  std::string text = fmt::format("  weights: {}, {} {} parameters{} in {} blocks{}, {}\n", session.source().name,
                                 session.model().parameter_elems(), precision_text(config), of_them, session.model().blocks.size(),
                                 session.source().config.fp8 ? " that multiply in fp8" : "", weights);
  text += "  data: " + data_text(session, config, data) + "\n";
  const i64 ranks = config.data_ranks(), rows = data.training->windows_per_step();
  text += fmt::format("  step: {} {}{} ({} {}{} x {} x {})", rows, session.model().reads_images() ? "image" : "row", rows == 1 ? "" : "s",
                      ranks, config.pipeline_stages > 1 ? "pipeline" : "rank", ranks == 1 ? "" : "s", config.micro_batch_rows(),
                      config.micro_batches(ranks));
  if (session.model().reads_tokens()) text += fmt::format(", {} tokens", rows * *config.sequence_length);
  text += fmt::format(", on {}{} thread{}{}; learning rate {}; ", session.device().device.is_cuda() ? session.device().name + " and " : "",
                      session.threads(), session.threads() == 1 ? "" : "s", config.ranks > 1 ? " each" : "",
                      print_number(*config.learning_rate));
  return text + epoch_note(config, *data.training, session.model().reads_images());
}

void tell_of_plan(Session& session, const TrainConfig& config, Messages& messages) {
  if (const std::string notice = session.pinning_notice(); !notice.empty()) messages.warn(notice);
  if (const std::string note = session.threads_note(config.bind); !note.empty()) messages.log(note);
  if (const std::string& meeting = session.device().meeting.text; !meeting.empty()) messages.log(meeting);
  session.print_plan(messages);
}

}  // namespace spillway::trainer
