// Uses the installed library as another project would: takes one eager optimizer step, then trains a model.
#include <iostream>

#include "autograd/gradient_check.h"
#include "eager/optimizer.h"
#include "nn/measure.h"
#include "ops/elementwise/operators.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"
#include "tensor/print.h"
#include "trainer/trainer.h"

using namespace spillway;

int main(int, char** argv) {
  const auto w = nn::make_parameter("w", {2}, DType::f32, {});
  nn::EagerParameters weights({w});
  eager::Optimizer optimizer(weights, optim::SgdSettings{.lr = 1});
  autograd::Tape tape(&weights);
  ops::sum(tape.parameter(w->value(), w->id) * tensor_of({1, 2}, {2})).backward();
  optimizer.step();
  std::cout << w->value() << "\n";

  const std::string folder = argv[1];
  Trainer training(trainer::train_settings({"--model", "gpt2-tiny", "--data", folder + "/text.txt", "--sequence-length", "32", "--steps",
                                            "2", "--threads", "1", "--out", folder + "/run"}));
  i64 steps = 0;
  training.callbacks.on_step = [&](const trainer::StepEvent&) { ++steps; };
  const trainer::TrainingResult result = training.fit();
  std::cout << steps << " steps, " << (result.finished ? "finished" : "stopped") << "\n";
  return steps == 2 && result.finished && values_of(w->value()) == std::vector<double>{-1, -2} ? 0 : 1;
}
