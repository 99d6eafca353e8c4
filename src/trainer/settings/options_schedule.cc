// Defines the options of the schedule command.
#include "trainer/settings/field.h"
#include "trainer/settings/schedule_costs.h"

namespace spillway::trainer {

std::vector<Option> schedule_options() {
  constexpr const char *kSchedule = "Schedule", *kTimes = "Times", *kFiles = "Files";
  const unsigned here = on(Command::schedule);
  return {
      {.name = "pipeline-schedule",
       .group = kSchedule,
       .help = "gpipe, 1f1b, interleaved, zb-h1, zb-v or vertical; or a CSV file in the notation of torch.distributed.pipelining (one row "
               "per rank, cells such as 3F0)",
       .field = text(&ScheduleConfig::pipeline_schedule),
       .commands = here,
       .metavar = "NAME|X.csv"},
      {.name = "pipeline-stages",
       .group = kSchedule,
       .help = "number of ranks of the pipeline",
       .field = integer(&ScheduleConfig::pipeline_stages),
       .commands = here,
       .default_text = "1, or the file's",
       .range = at_least(1)},
      {.name = "pipeline-chunks",
       .group = kSchedule,
       .help = "model chunks (virtual pipeline stages) per rank",
       .field = integer(&ScheduleConfig::pipeline_chunks),
       .commands = here,
       .default_text = "2 for interleaved and zb-v, else 1, or the file's",
       .range = at_least(1)},
      {.name = "gradient-accumulation-steps",
       .group = kSchedule,
       .help = "micro-batches per step",
       .field = integer(&ScheduleConfig::gradient_accumulation_steps),
       .commands = here,
       .default_text = "1, or the file's",
       .range = at_least(1)},
      {.name = "costs",
       .group = kTimes,
       .help = "time of a forward (F), backward (B), input-gradient (I) and weight-gradient (W), each one number or one per stage "
               "(F=1:1:2), and of a transfer between ranks (transfer); kept: share of an activation that W still needs after I. By default "
               "each takes one slot; B=2 gives a backward the time of I and W together",
       .field = composite(&ScheduleConfig::costs, parse_costs, print_costs),
       .commands = here,
       .metavar = "F=X,B=X,.."},
      {.name = "out",
       .group = kFiles,
       .help = "SVG drawing to write: one row per rank, colors by action, shades by chunk",
       .field = text(&ScheduleConfig::out),
       .commands = here,
       .metavar = "X.svg",
       .default_text = "none"},
      {.name = "csv",
       .group = kFiles,
       .help =
           "CSV table to write, with empty cells for idle slots (a schedule from a file keeps its own); X.compact.csv has no idle slots",
       .field = text(&ScheduleConfig::csv),
       .commands = here,
       .metavar = "X.csv",
       .default_text = "none"},
  };
}

}  // namespace spillway::trainer
