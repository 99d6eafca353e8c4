// Makes blocks from a list of parameter uses, for tests of code that combines blocks.
#pragma once
#include <functional>

#include "nn/module.h"

namespace spillway::nn::test {

using Forward = std::function<Variable(const Variable&, const Context&)>;

class Block final : public Module {
 public:
  explicit Block(std::vector<ParameterUse> uses, Forward forward = {}) : uses_(std::move(uses)), forward_(std::move(forward)) {}
  Variable forward(const Variable& x, const Context& context) const override { return forward_(x, context); }
  std::vector<ParameterUse> parameters() const override { return uses_; }

 private:
  std::vector<ParameterUse> uses_;
  Forward forward_;
};

inline std::unique_ptr<Module> block(std::vector<ParameterUse> uses, Forward forward = {}) {
  return std::make_unique<Block>(std::move(uses), std::move(forward));
}

inline std::shared_ptr<Parameter> weight(std::string name, const Shape& shape = {2}, DType dtype = DType::f32) {
  return make_parameter(std::move(name), shape, dtype, {});
}

}  // namespace spillway::nn::test
