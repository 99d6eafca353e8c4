#include "trainer/train/train_notes.h"

#include <fmt/format.h>

#include "optim/isa.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/plan/freeze.h"

namespace spillway::trainer {
namespace {

std::string kept_as(kernels::WeightFormat base) {
  return base == kernels::WeightFormat::plain ? "" : ", weight matrices kept in " + to_string(base);
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

void tell_of_run(Session& session, const TrainConfig& config, Messages& messages) {
  if (const std::string notice = session.pinning_notice(); !notice.empty()) messages.warn(notice);
  const i64 frozen = frozen_elems(session.model());
  messages.log(fmt::format(
      "{}: {} parameters{} in {} blocks, {} on {}{}{} thread{}", session.source().name, session.model().parameter_elems(),
      frozen ? fmt::format(" ({} of them frozen{})", frozen, kept_as(session.source().config.base_weights)) : "",
      session.model().blocks.size(), to_string(session.dtype()), config.ranks > 1 ? fmt::format("{} ranks of ", config.ranks) : "",
      session.device().device.is_cuda() ? session.device().name + " and " : "", session.threads(), session.threads() == 1 ? "" : "s"));
  if (const std::string note = session.threads_note(config.bind); !note.empty()) messages.log(note);
  if (const std::string& meeting = session.device().meeting.text; !meeting.empty()) messages.log(meeting);
  session.print_plan(messages);
}

}  // namespace spillway::trainer
