// Options of the schedule command.
#include "app/flags/field.h"
#include "app/flags/schedule_costs.h"

namespace spillway::app {

std::vector<Option> schedule_options() {
  constexpr const char *kSchedule = "Schedule", *kTimes = "Times", *kFiles = "Files";
  const unsigned here = on(Command::schedule);
  return {
      {.name = "pipeline-schedule",
       .group = kSchedule,
       .help = "gpipe, 1f1b, interleaved, zb-h1, zb-v or vertical; or a CSV file in torch.distributed.pipelining's notation (a row a rank, "
               "cells such as 3F0)",
       .field = text(&ScheduleConfig::pipeline_schedule),
       .commands = here,
       .metavar = "NAME|X.csv"},
      {.name = "pipeline-stages",
       .group = kSchedule,
       .help = "ranks of the pipeline",
       .field = integer(&ScheduleConfig::pipeline_stages),
       .commands = here,
       .default_text = "1, or the file's",
       .range = at_least(1)},
      {.name = "pipeline-chunks",
       .group = kSchedule,
       .help = "stages a rank holds, as model chunks",
       .field = integer(&ScheduleConfig::pipeline_chunks),
       .commands = here,
       .default_text = "2 for interleaved and zb-v, else 1, or the file's",
       .range = at_least(1)},
      {.name = "gradient-accumulation-steps",
       .group = kSchedule,
       .help = "micro-batches of a step",
       .field = integer(&ScheduleConfig::gradient_accumulation_steps),
       .commands = here,
       .default_text = "1, or the file's",
       .range = at_least(1)},
      {.name = "costs",
       .group = kTimes,
       .help =
           "time of a forward, backward, input-gradient and weight-gradient, each one number or one a stage (F=1:1:2), and of a transfer "
           "between ranks; kept: share of an activation that W still needs after I. Without it all take one slot: B=2 gives a backward "
           "the time of I and W",
       .field = composite(&ScheduleConfig::costs, parse_costs, print_costs),
       .commands = here,
       .metavar = "F=X,B=X,.."},
      {.name = "out",
       .group = kFiles,
       .help = "a drawing to write: a row a rank, colours by action, shades by chunk",
       .field = text(&ScheduleConfig::out),
       .commands = here,
       .metavar = "X.svg",
       .default_text = "none"},
      {.name = "csv",
       .group = kFiles,
       .help = "a table to write, idle slots as empty cells (a file's as it has them); X.compact.csv has no idle slots",
       .field = text(&ScheduleConfig::csv),
       .commands = here,
       .metavar = "X.csv",
       .default_text = "none"},
  };
}

}  // namespace spillway::app
