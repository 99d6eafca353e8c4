// Lesson: data parallelism by hand, in the eager style. Every rank has the whole model and its own part of each batch; the ranks share
// only one all-reduce of the gradients per step. The four things to remember are numbered. Usage: example_data_parallel [RANKS [TEXT]].
// Ranks are threads here; with another Communicator they are processes, and the code below stays the same.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "data/loader/loader.h"
#include "eager/optimizer.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/weights.h"
#include "optim/schedule.h"
#include "parallel/comm/communicator_local.h"

using namespace spillway;

namespace {

constexpr i64 kSteps = 40, kB = 4, kT = 64;

// Returns the path of a text file, whose bytes are used as tokens; without an argument the example writes such a file.
std::string text_file(int argc, char** argv) {
  if (argc > 2) return argv[2];
  const std::string path = "/tmp/spillway_example_data_parallel.txt";
  std::ofstream out(path);
  for (int line = 0; line < 2000; ++line) out << line << " bottles of milk on the wall, take one down, " << line * line << " remain.\n";
  return path;
}

std::span<std::byte> bytes_of(const Tensor& tensor) { return std::as_writable_bytes(tensor.span<float>()); }

class Trainer {
 public:
  Trainer(parallel::Communicator& ranks, const data::Loader& loader) : ranks_(ranks), loader_(loader), weights_(model_) {
    // 1. All ranks start with the same weights. Every rank draws the same values, but those of rank 0 are broadcast to be sure.
    models::fill(model_, models::ScratchWeights(1337));
    for (const auto& p : model_.parameters) ranks_.broadcast(bytes_of(p->value()), 0).wait();
    // 4. The ranks need only this collective. It runs whenever backward has finished the gradient of a parameter. Afterwards every rank
    // has the same sum, and so takes the same optimizer step.
    weights_.on_gradient([this](const nn::Parameter&, const Tensor& gradient) {
      ranks_.all_reduce(bytes_of(gradient), DType::f32, parallel::Reduction::sum).wait();
    });
  }

  void run() {
    // 2. More ranks make a larger batch, which allows a larger learning rate. A slow warm-up leads to it..
    const optim::Schedule schedule{.learning_rate = 5e-4 * ranks_.size(), .warmup_steps = kSteps / 4, .steps = kSteps};
    for (i64 step = 0; step < kSteps; ++step) {
      const double loss = one_step(optim::learning_rate(schedule, step));
      if (ranks_.rank() == 0 && (step + 1) % 10 == 0)
        std::printf("step %2lld  loss %.4f over %d ranks\n", static_cast<long long>(step + 1), loss, ranks_.size());
    }
  }

 private:
  double one_step(double learning_rate) {
    // 3. The loader knows its rank and the number of ranks: together the ranks read each window once.
    const StepBatch batch = loader_.step(cursor_);
    cursor_ = loader_.cursor_after(cursor_);
    double targets = static_cast<double>(batch.counted_targets);
    total(targets);

    autograd::Tape tape(&weights_);
    nn::Context context;
    context.batch = &batch.micro_batches[0];
    context.tape = &tape;
    context.loss_factor = 1 / targets;  // makes the sum of the gradients over all ranks the gradient of the mean loss
    const nn::Variable loss = nn::run(model_, context);
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.set_learning_rate(learning_rate);
    optimizer_.step();
    double sum = loss.value.item();
    total(sum);
    return sum / targets;
  }

  void total(double& value) {
    ranks_.all_reduce(std::as_writable_bytes(std::span(&value, 1)), DType::f64, parallel::Reduction::sum).wait();
  }

  parallel::Communicator& ranks_;
  const data::Loader& loader_;
  i64 cursor_ = 0;  // number of rows that all ranks together have read before this step
  const nn::Sequential model_ = models::build(models::preset("gpt2-tiny"), DType::f32);
  nn::EagerParameters weights_;
  eager::Optimizer optimizer_{weights_, optim::AdamSettings{.beta2 = 0.95, .weight_decay = 0.1, .decoupled_weight_decay = true}};
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto sources = data::open_token_sources({text_file(argc, argv)}, 256);
  auto ends = parallel::make_local_communicators(ranks);
  std::vector<std::thread> threads;
  for (auto& end : ends) {
    threads.emplace_back([&sources, &end, ranks] {
      const data::Loader loader(sources, {.sequence_length = kT, .micro_batch_size = kB, .rank = end->rank(), .ranks = ranks});
      Trainer(*end, loader).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
}
