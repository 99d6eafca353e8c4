#include "trainer/settings/suggest.h"

#include <algorithm>

#include "base/edit_distance.h"

namespace spillway::trainer {
namespace {

struct Foreign {
  std::string_view theirs, ours;
};

// kForeign maps option names of torchrun, DeepSpeed, Hugging Face, Megatron, llm.c
// and nanoGPT, with underscores written as dashes, to Spillway's option names.
constexpr Foreign kForeign[] = {
    {"lr", "learning-rate"},
    {"max-lr", "learning-rate"},
    {"min-lr", "min-lr-ratio"},
    {"final-learning-rate-fraction", "min-lr-ratio"},
    {"wd", "weight-decay"},
    {"adam-beta1", "betas"},
    {"adam-beta2", "betas"},
    {"beta1", "betas"},
    {"beta2", "betas"},
    {"adam-eps", "eps"},
    {"adam-epsilon", "eps"},
    {"epsilon", "eps"},
    {"optim", "optimizer"},
    {"batch-size", "micro-batch-size"},
    {"per-device-train-batch-size", "micro-batch-size"},
    {"per-gpu-train-batch-size", "micro-batch-size"},
    {"train-micro-batch-size-per-gpu", "micro-batch-size"},
    {"micro-batch", "micro-batch-size"},
    {"train-batch-size", "global-batch-size"},
    {"total-batch-size", "global-batch-size"},
    {"grad-accum", "gradient-accumulation-steps"},
    {"grad-accum-steps", "gradient-accumulation-steps"},
    {"accumulate-grad-batches", "gradient-accumulation-steps"},
    {"gradient-accumulation", "gradient-accumulation-steps"},
    {"grad-clip", "gradient-clipping"},
    {"clip-grad", "gradient-clipping"},
    {"max-grad-norm", "gradient-clipping"},
    {"gradient-clip-val", "gradient-clipping"},
    {"scheduler", "lr-schedule"},
    {"lr-scheduler", "lr-schedule"},
    {"lr-scheduler-type", "lr-schedule"},
    {"lr-decay-style", "lr-schedule"},
    {"warmup", "warmup-steps"},
    {"warmup-iters", "warmup-steps"},
    {"warmup-ratio", "warmup-steps"},
    {"num-warmup-steps", "warmup-steps"},
    {"learning-rate-decay", "min-lr-ratio"},
    {"max-steps", "steps"},
    {"max-iters", "steps"},
    {"train-iters", "steps"},
    {"num-steps", "steps"},
    {"num-iterations", "steps"},
    {"iterations", "steps"},
    {"num-train-epochs", "epochs"},
    {"max-epochs", "epochs"},
    {"dataloader-drop-last", "drop-last"},
    {"num-epochs", "epochs"},
    {"seq-length", "sequence-length"},
    {"seq-len", "sequence-length"},
    {"block-size", "sequence-length"},
    {"max-seq-length", "sequence-length"},
    {"max-length", "sequence-length"},
    {"context-length", "sequence-length"},
    {"bf16", "precision bf16"},
    {"fp16", "precision fp16"},
    {"fp32", "precision fp32"},
    {"tf32", "precision tf32"},
    {"dtype", "precision"},
    {"mixed-precision", "precision"},
    {"torch-dtype", "precision"},
    {"amp", "precision"},
    {"gradient-checkpointing", "recompute"},
    {"activation-checkpointing", "recompute"},
    {"recompute-activations", "recompute"},
    {"recompute-granularity", "recompute"},
    {"deepspeed-config", "deepspeed"},
    {"ds-config", "deepspeed"},
    {"offload", "place-optimizer"},
    {"cpu-offload", "place-optimizer"},
    {"offload-optimizer", "place-optimizer"},
    {"offload-param", "place-parameters"},
    {"offload-params", "place-parameters"},
    {"place-weights", "place-parameters"},
    {"weights", "place-parameters"},
    {"params", "place-parameters"},
    {"parameters", "place-parameters"},
    {"gradients", "place-gradients"},
    {"optimizer-state", "place-optimizer"},
    {"optimizer-tier", "place-optimizer"},
    {"place-optimizer-state", "place-optimizer"},
    {"activations", "place-activations"},
    {"offload-activations", "place-activations"},
    {"nvme-path", "nvme"},
    {"local-nvme", "nvme"},
    {"scratch", "nvme"},
    {"gpu-memory", "device-memory"},
    {"max-memory", "device-memory"},
    {"cpu-memory", "host-memory"},
    {"memory", "device-memory"},
    {"nproc-per-node", "ranks"},
    {"num-gpus", "ranks"},
    {"num-processes", "ranks"},
    {"gpus", "ranks"},
    {"world-size", "ranks"},
    {"local-rank", "ranks"},
    {"local-world-size", "ranks"},
    {"zero", "zero-stage"},
    {"stage", "zero-stage"},
    {"pipeline-model-parallel-size", "pipeline-stages"},
    {"pp", "pipeline-stages"},
    {"virtual-pipeline-model-parallel-size", "pipeline-chunks"},
    {"micro-batches", "gradient-accumulation-steps"},
    {"num-microbatches", "gradient-accumulation-steps"},
    {"backend", "communicator"},
    {"dist-backend", "communicator"},
    {"rdzv-endpoint", "rendezvous"},
    {"rdzv-backend", "rendezvous"},
    {"master-addr", "rendezvous"},
    {"master-port", "rendezvous"},
    {"dataset", "data"},
    {"data-path", "data"},
    {"data-dir", "data"},
    {"dataset-name", "data"},
    {"train-file", "data"},
    {"train-data", "data"},
    {"input-bin", "data"},
    {"input", "data"},
    {"valid-data", "validation-data"},
    {"validation-file", "validation-data"},
    {"val-data", "validation-data"},
    {"input-val-bin", "validation-data"},
    {"eval-steps", "validate-every"},
    {"eval-strategy", "validate-every"},
    {"evaluation-strategy", "validate-every"},
    {"nnodes", "nodes"},
    {"num-nodes", "nodes"},
    {"eval-interval", "validate-every"},
    {"val-loss-every", "validate-every"},
    {"eval-iters", "validation-steps"},
    {"val-max-steps", "validation-steps"},
    {"model-name", "model"},
    {"model-name-or-path", "model"},
    {"output-dir", "out"},
    {"out-dir", "out"},
    {"output", "out"},
    {"save-dir", "out"},
    {"save", "out"},
    {"save-interval", "checkpoint-every"},
    {"save-strategy", "checkpoint-every"},
    {"save-steps", "checkpoint-every"},
    {"save-every", "checkpoint-every"},
    {"save-total-limit", "keep"},
    {"resume-from-checkpoint", "resume"},
    {"load", "resume"},
    {"logging-steps", "log-every"},
    {"log-interval", "log-every"},
    {"num-workers", "workers"},
    {"dataloader-num-workers", "workers"},
    {"num-threads", "threads"},
    {"max-new-tokens", "max-tokens"},
    {"temp", "temperature"},
};

// Advice belongs to an option of another program that corresponds to no single Spillway flag. `words` tells the user what to do instead.
struct Advice {
  std::string_view theirs, words;
};
constexpr const char* kNodes =
    "the launcher sets the number of nodes: start the same command on all nodes with srun, torchrun or mpirun; spillway slurm --nodes N "
    "prints such a job script, --ranks N starts N ranks on one node";
constexpr const char* kVerbose =
    "train --log-every 1 prints one line per step, --profile prints a table at the end, --trace FILE writes a trace of some steps; a run's "
    "log.txt keeps all lines";
constexpr const char* kReports =
    "--tensorboard on, the default, writes event files into the run folder; metrics.jsonl there has one line per step and can be read by "
    "pandas.read_json(path, lines=True)";
constexpr const char* kAttention =
    "--attention chooses the kernels: own, whose memory never grows with the square of the length, or cudnn, NVIDIA's on a GPU";
constexpr Advice kAdvice[] = {{"nnodes", kNodes},    {"num-nodes", kNodes},      {"node-rank", kNodes},
                              {"verbose", kVerbose}, {"debug", kVerbose},        {"report-to", kReports},
                              {"wandb", kReports},   {"flash-attn", kAttention}, {"attn-implementation", kAttention}};

std::string dashed(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string shown(std::string_view name, bool flags) {
  if (flags) return "--" + std::string(name);
  std::string key(name);
  std::ranges::replace(key, '-', '_');
  return "\"" + key + "\"";
}

std::string owners(std::string_view name) {
  std::string text;
  for (const CommandInfo& other : commands()) {
    if (find_option(other.command, name)) text += (text.empty() ? "" : ", ") + std::string(other.name);
  }
  return text;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  int least = static_cast<int>(std::max<size_t>(word.size() / 2, 2)) + 1;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string unknown_option(Command command, std::string_view name, bool flags) {
  const std::string own(info(command).name), wanted = dashed(name);
  const std::string given = flags ? "--" + std::string(name) : "\"" + std::string(name) + "\"";
  const std::string what = "[" + given + "] unknown " + (flags ? "flag" : "key") + " of " + own + ": ";
  if (const Option* own_option = find_option(command, wanted)) {
    if (flags && own_option->positional) return what + "give the value without a flag: spillway " + own + " " + own_option->metavar;
    return what + "write " + shown(wanted, flags);
  }
  const auto foreign = std::ranges::find(kForeign, wanted, &Foreign::theirs);
  if (foreign != std::end(kForeign) && find_option(command, foreign->ours.substr(0, foreign->ours.find(' '))))
    return what + "the name here is " + shown(foreign->ours, flags);
  const auto advice = std::ranges::find(kAdvice, wanted, &Advice::theirs);
  if (advice != std::end(kAdvice) && find_option(command, "model")) return what + std::string(advice->words);
  if (const std::string others = owners(wanted); !others.empty()) return what + "it is an option of " + others;
  std::vector<std::string> known;
  for (const Option* option : options_of(command)) {
    if (!option->positional) known.push_back(option->name);
  }
  const std::string close = nearest(wanted, known);
  const std::string help = "spillway " + own + " --help=all lists all flags";
  return what + (close.empty() ? help : "did you mean " + shown(close, flags) + "? " + help);
}

std::string unknown_command(std::string_view name) {
  std::vector<std::string> known;
  for (const CommandInfo& one : commands()) known.emplace_back(one.name);
  const std::string close = nearest(name, known);
  return "[" + std::string(name) + "] unknown command: " + (close.empty() ? "" : "did you mean " + close + "? ") +
         "spillway --help lists all commands";
}

}  // namespace spillway::trainer
