#include "trainer/settings/option.h"

#include <algorithm>
#include <iterator>

#include "trainer/settings/field.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

constexpr CommandInfo kCommands[] = {
    {"train", "--model MODEL --data PATH [flags]", "trains a model, or continues a run", Command::train},
    {"plan", "--model MODEL [train's flags]", "shows what train would store in which tier, and whether it fits", Command::plan},
    {"generate", "--model RUN|FOLDER --prompt TEXT", "writes text with a model, a run or a checkpoint", Command::generate},
    {"chat", "RUN|FOLDER", "chats with a model in the terminal, with its chat template", Command::chat},
    {"evaluate", "--model RUN|FOLDER --data PATH", "computes loss, and perplexity or accuracy, on data", Command::evaluate},
    {"classify", "--model RUN|FOLDER IMAGE...", "classifies PNG and JPEG images, with probabilities", Command::classify},
    {"export", "RUN --out DIR", "writes weights for Hugging Face, ONNX Runtime or llama.cpp", Command::export_model},
    {"import", "FILE --out DIR [--as NAME]", "converts weights of llm.c or torchvision to a Hugging Face folder", Command::import_model},
    {"tokenize", "--data FILE --out X.bin | --decode X.bin", "converts text to token files and back", Command::tokenize},
    {"inspect", "PATH", "shows what is in a run, a checkpoint, weights, tokens, rows or text", Command::inspect},
    {"status", "RUN", "shows the progress of a run, read from its folder", Command::status},
    {"top", "RUN", "shows the progress of a run live in the terminal", Command::top},
    {"report", "RUN... [--out X.html]", "writes an HTML page about one run or several", Command::report},
    {"doctor", "[--nvme PATH]", "checks this node: cores, memory, I/O, scratch paths, leftovers", Command::doctor},
    {"bench", "[memory] [matmul] [cpu-adam] [disk]", "measures the speed of this node, which plan and train then use", Command::bench},
    {"schedule", "--pipeline-schedule NAME|X.csv [--out X.svg]", "prints, draws, checks and times a pipeline schedule", Command::schedule},
    {"selftest", "[--nvme PATH]", "trains a tiny model in many ways and compares results to the bit", Command::selftest},
    {"slurm", "--nodes N [--gpus N] [train's flags]", "prints a job script that trains, and continues after its time limit",
     Command::slurm},
};

template <size_t I = 0>
Settings settings_at(size_t index) {
  if constexpr (I + 1 < std::variant_size_v<Settings>) {
    if (index != I) return settings_at<I + 1>(index);
  }
  return Settings(std::in_place_index<I>);
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<Option> all_options() {
  std::vector<Option> all;
  for (auto table :
       {model_options(), optimizer_options(), memory_options(), run_options(), tool_options(), schedule_options(), slurm_options()}) {
    std::ranges::move(table, std::back_inserter(all));
  }
  return all;
}

}  // namespace

std::span<const CommandInfo> commands() { return kCommands; }

const CommandInfo& info(Command command) { return *std::ranges::find(kCommands, command, &CommandInfo::command); }

Settings default_settings(Command command) { return settings_at(static_cast<size_t>(command)); }

bool Range::holds(double x) const { return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high); }

std::string Range::text() const {
  const bool bounded = high != std::numeric_limits<double>::infinity();
  if (!bounded) return (low_open ? "above " : "at least ") + print_number(low);
  return std::string("in ") + (low_open ? "(" : "[") + print_number(low) + ", " + print_number(high) + (high_open ? ")" : "]");
}

std::string Option::key() const {
  std::string key = name;
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string Option::shown_default() const {
  if (!default_text.empty()) return default_text;
  if (!unset_word.empty()) return unset_word;
  if (!field.get || field.kind == Kind::flag) return "";
  for (unsigned c = 0; c < std::variant_size_v<Settings>; ++c) {
    if (!belongs_to(static_cast<Command>(c))) continue;
    const auto texts = field.get(default_settings(static_cast<Command>(c)));
    return texts ? join(*texts, ", ") : "";
  }
  return "";
}

std::string Option::shown_metavar() const {
  if (!metavar.empty()) return metavar;
  switch (field.kind) {
    case Kind::text:
      return "TEXT";
    case Kind::integer:
      return "N";
    case Kind::number:
      return "X";
    case Kind::flag:
      return "";
    case Kind::size:
      return "SIZE";
    case Kind::duration:
      return "TIME";
    case Kind::choice:
      return (unset_word.empty() ? "" : unset_word + "|") + join(field.choices, "|");
    case Kind::composite:
      return "VALUE";
  }
  return "";
}

template <class C>
const C& part(const Settings& settings) {
  const C* found = nullptr;
  std::visit(
      [&](const auto& config) {
        if constexpr (std::is_base_of_v<C, std::remove_cvref_t<decltype(config)>>) found = &config;
      },
      settings);
  require(found != nullptr, "[options] an option is bound to a configuration its command does not have");
  return *found;
}
template <class C>
C& part(Settings& settings) {
  return const_cast<C&>(part<C>(std::as_const(settings)));
}

#define SPILLWAY_PART(C)                      \
  template const C& part<C>(const Settings&); \
  template C& part<C>(Settings&)
SPILLWAY_PART(CommonConfig);
SPILLWAY_PART(ResourceConfig);
SPILLWAY_PART(RanksConfig);
SPILLWAY_PART(TextConfig);
SPILLWAY_PART(TrainConfig);
SPILLWAY_PART(PlanConfig);
SPILLWAY_PART(WritingConfig);
SPILLWAY_PART(GenerateConfig);
SPILLWAY_PART(ChatConfig);
SPILLWAY_PART(EvaluateConfig);
SPILLWAY_PART(ClassifyConfig);
SPILLWAY_PART(ExportConfig);
SPILLWAY_PART(ImportConfig);
SPILLWAY_PART(TokenizeConfig);
SPILLWAY_PART(InspectConfig);
SPILLWAY_PART(StatusConfig);
SPILLWAY_PART(TopConfig);
SPILLWAY_PART(ReportConfig);
SPILLWAY_PART(NodeConfig);
SPILLWAY_PART(DoctorConfig);
SPILLWAY_PART(BenchConfig);
SPILLWAY_PART(SelftestConfig);
SPILLWAY_PART(ScheduleConfig);
SPILLWAY_PART(SlurmConfig);
#undef SPILLWAY_PART

const std::vector<Option>& options() {
  static const std::vector<Option> all = all_options();
  return all;
}

std::vector<const Option*> options_of(Command command) {
  std::vector<const Option*> found;
  for (const Option& option : options()) {
    if (option.belongs_to(command)) found.push_back(&option);
  }
  return found;
}

const Option* find_option(Command command, std::string_view name) {
  for (const Option& option : options()) {
    if (option.belongs_to(command) && option.name == name) return &option;
  }
  return nullptr;
}

std::vector<std::string> keys_with(Command command, bool Option::*attribute) {
  std::vector<std::string> keys;
  for (const Option* option : options_of(command)) {
    if (option->*attribute) keys.push_back(option->key());
  }
  return keys;
}

bool is_given(const Option& option, const Settings& settings) {
  return option.field.get(settings) != option.field.get(settings_at(settings.index()));
}

}  // namespace spillway::trainer
