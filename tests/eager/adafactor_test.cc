// Tests the eager optimizer (loss.backward(), optimizer.step()) with Adafactor: it follows
// PyTorch's trajectories, and its state is saved and loaded under PyTorch's names and shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "autograd/tape.h"
#include "data/safetensors/safetensors.h"
#include "eager/optimizer.h"
#include "ops/elementwise/operators.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"
#include "tests/optim/support_reference.h"
#include "tests/support/temporary_folder.h"

namespace spillway::eager::adafactor_test {
namespace {

using Numbers = std::vector<double>;
using optim::AdafactorSettings;

constexpr AdafactorSettings kSettings{.lr = 0.01, .weight_decay = 0.1};

// Holds tensor number i of the reference file as a parameter, together with its gradients of all steps.
template <class T>
struct Weight {
  Weight(int i, const Shape& shape)
      : name("p" + std::to_string(i)),
        parameter(nn::make_parameter(name, shape, sizeof(T) == 4 ? DType::f32 : DType::f64, {})),
        held(std::make_unique<nn::EagerParameters>(std::vector{parameter})) {
    std::ranges::copy(reference.get<T>(name + "/init"), parameter->value().template data<T>());
  }
  void step(Optimizer& optimizer, size_t t, double gradient_factor = 1) {
    std::vector<T> all = reference.get<T>(name + "/grads");
    const auto n = static_cast<size_t>(parameter->elems());
    for (T& g : all) g = static_cast<T>(g * gradient_factor);
    optimizer.zero_grad();
    autograd::Tape tape(held.get());
    const Tensor gradient = tensor_of<T>(std::span<const T>(all).subspan(t * n, n), parameter->shape);
    ops::sum(tape.parameter(parameter->value(), 0) * gradient).backward();
    optimizer.step(1 / gradient_factor);
  }

  const test::Reference reference{"adafactor_torch.safetensors"};
  const std::string name;
  std::shared_ptr<nn::Parameter> parameter;
  std::unique_ptr<nn::EagerParameters> held;
};

const std::vector<Shape> kShapes = {{3, 5}, {7}, {2, 3, 4}};

template <class T>
double distance(int i, const AdafactorSettings& settings, double gradient_factor = 1) {
  Weight<T> weight(i, kShapes[static_cast<size_t>(i)]);
  Optimizer optimizer(*weight.held, settings);
  const Numbers after = weight.reference.template get<double>(weight.name + (sizeof(T) == 4 ? "/f32/after" : "/f64/after"));
  double worst = 0;
  for (size_t t = 0; t < 20; ++t) {
    weight.step(optimizer, t, gradient_factor);
    const Numbers got = values_of(weight.parameter->value());
    for (size_t k = 0; k < got.size(); ++k) worst = std::max(worst, std::abs(got[k] - after[got.size() * t + k]));
  }
  return worst;
}

// PyTorch's own f32 run differs from its f64 run by 7e-7 (max_f32_minus_f64 in the
// reference file). Our f32 run may differ from f64 by as much in the other direction.
TEST(EagerAdafactor, FollowsPyTorch) {
  for (const int i : {0, 1, 2}) {
    EXPECT_LT(distance<double>(i, kSettings), 1e-13) << i;
    EXPECT_LT(distance<float>(i, kSettings), 1.4e-6) << i;
    EXPECT_LT(distance<double>(i, kSettings, 1024), 1e-13) << i << ", a loss scale is divided out";
  }
}

TEST(EagerAdafactor, AWrongSettingWouldBeSeen) {
  for (const auto member :
       {&AdafactorSettings::lr, &AdafactorSettings::beta2_decay, &AdafactorSettings::d, &AdafactorSettings::weight_decay}) {
    AdafactorSettings wrong = kSettings;
    wrong.*member *= 1.001;
    EXPECT_GT(distance<double>(0, wrong), 1e-9);
  }
  AdafactorSettings wrong = kSettings;
  wrong.eps1 = 1e-3;  // another eps1 is refused: the file has gradients of 1e-6, whose updates it would change
  EXPECT_GT(distance<double>(2, wrong), 1e-9);
  wrong = kSettings;
  wrong.eps2 = 10;
  EXPECT_GT(distance<double>(0, wrong), 1e-9);
}

// A matrix of 1500 x 70 has many tiles of optimizer state, and its row factors take more than one. Factors
// of rows and columns must equal those of the formula, both in the saved file and after it was read back.
TEST(EagerAdafactor, StateGoesToAFileAndBack) {
  const i64 rows = 1500, columns = 70;
  const auto step = [&](nn::EagerParameters& held, Optimizer& optimizer, double phase) {
    const auto& parameter = held.parameters()[0];
    std::vector<float> g(static_cast<size_t>(parameter->elems()));
    for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(std::cos(phase + 0.37 * static_cast<double>(i)));
    optimizer.zero_grad();
    autograd::Tape tape(&held);
    ops::sum(tape.parameter(parameter->value(), 0) * tensor_of<float>(g, parameter->shape)).backward();
    optimizer.step();
    return g;
  };
  const auto parameter = nn::make_parameter("w", {rows, columns}, DType::f32, {}),
             other = nn::make_parameter("w", {rows, columns}, DType::f32, {});
  nn::EagerParameters held(std::vector{parameter}), others(std::vector{other});
  for (const auto& p : {parameter, other}) {
    for (i64 i = 0; i < p->elems(); ++i) p->value().data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  }
  Optimizer optimizer(held, kSettings), again(others, kSettings);
  const std::vector<float> g = step(held, optimizer, 0);

  const test::TemporaryFolder folder;
  const auto file = folder.path() / "state.safetensors";
  optimizer.save(file);
  const data::SafetensorsReader reader(file);
  ASSERT_TRUE(reader.find("w.row_var") && reader.find("w.col_var"));
  EXPECT_EQ(reader.tensors().size(), 2u);
  EXPECT_TRUE(reader.find("w.row_var")->shape == Shape({rows, 1}));
  EXPECT_TRUE(reader.find("w.col_var")->shape == Shape({1, columns}));
  Numbers row_var(static_cast<size_t>(rows)), col_var(static_cast<size_t>(columns)), want_rows(row_var.size()),
      want_columns(col_var.size());
  reader.read_wide(*reader.find("w.row_var"), 0, row_var);
  reader.read_wide(*reader.find("w.col_var"), 0, col_var);
  for (size_t i = 0; i < g.size(); ++i) {
    want_rows[i / 70] += static_cast<double>(g[i]) * g[i] / 70;
    want_columns[i % 70] += static_cast<double>(g[i]) * g[i] / 1500;
  }
  for (size_t r = 0; r < row_var.size(); ++r) ASSERT_NEAR(row_var[r], want_rows[r], 1e-6) << r;
  for (size_t c = 0; c < col_var.size(); ++c) ASSERT_NEAR(col_var[c], want_columns[c], 1e-6) << c;

  step(others, again, 3);  // changes the state of `again`, which load() must replace
  again.load(file);
  std::ranges::copy(parameter->value().span<float>(), other->value().data<float>());
  step(held, optimizer, 1);
  step(others, again, 1);
  EXPECT_TRUE(std::ranges::equal(parameter->value().span<float>(), other->value().span<float>()));
}

// If one of the saved factors has the wrong shape, load() refuses the file and changes nothing of the optimizer's state.
TEST(EagerAdafactor, FactorsOfAnotherShapeAreRefused) {
  const test::TemporaryFolder folder;
  const auto state = [&](const std::string& name, const Shape& shape) {
    const auto parameter = nn::make_parameter("w", shape, DType::f32, {});
    nn::EagerParameters held(std::vector{parameter});
    Optimizer optimizer(held, kSettings);
    optimizer.save(folder / name);
  };
  state("transposed", {5, 3});
  state("vector", {15});
  Weight<float> weight(0, kShapes[0]);
  weight.parameter->name = "w";
  Optimizer optimizer(*weight.held, kSettings);
  weight.step(optimizer, 0);
  optimizer.save(folder / "before");
  const auto refusal = [&](const std::string& name) {
    try {
      optimizer.load(folder / name);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  EXPECT_THAT(refusal("transposed"), testing::HasSubstr("expected w.row_var, f32 [3, 1], got f32 [5, 1]"));
  EXPECT_THAT(refusal("vector"), testing::HasSubstr("expected w.row_var, f32 [3, 1], got none"));
  optimizer.save(folder / "after");
  const auto bytes = [&](const char* name) {
    std::ifstream file(folder / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_GT(bytes("before").size(), 100u);
  EXPECT_EQ(bytes("after"), bytes("before"));
}

}  // namespace
}  // namespace spillway::eager::adafactor_test
