#include "tests/kernels/support_device_code.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <sstream>

namespace spillway::test {
namespace {

// Runs a command and returns its output. A toolkit may lack cuobjdump and the nvdisasm
// that cuobjdump starts. scripts/setup.sh --tests then puts both into build/tools.
std::string output_of(const std::string& command) {
  const std::string path = std::string("PATH=\"$PATH:") + SPILLWAY_CUDA_TOOLS + "\" ";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((path + command + " 2>/dev/null").c_str(), "r"), ::pclose);
  std::string all;
  std::array<char, 1 << 16> some;
  for (size_t got; pipe && (got = std::fread(some.data(), 1, some.size(), pipe.get())) > 0;) all.append(some.data(), got);
  return all;
}

void erase_all(std::string& from, const std::string& what) {
  for (size_t at; (at = from.find(what)) != std::string::npos;) from.erase(at, what.size());
}

std::string readable(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) return mangled;
  std::string name = plain.get();
  for (const char* space : {"(anonymous namespace)::", "spillway::", "kernels::", "attention_mma::", "expert_mma::", "cuda::",
                            "convolution::", "(Kind)", "(WeightFormat)"}) {
    erase_all(name, space);
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  return name.substr(0, name.find('('));
}

// Extracts NAME from lines such as "  Function : NAME", "  Function NAME:" or "arch = NAME". Returns whether there is one.
bool names(const std::string& line, const char* before, char after, std::string& name) {
  const size_t at = line.find(before);
  if (at == std::string::npos) return false;
  name = line.substr(at + std::strlen(before));
  name = name.substr(0, name.find(after));
  return true;
}

int number_after(const std::string& line, const char* what) {
  const size_t at = line.find(what);
  return at == std::string::npos ? -1 : std::atoi(line.c_str() + at + std::strlen(what));
}

// Parses a line such as "        /*0040*/              @!P1 LDG.E R2, [R2.64] ;      /* 0x… */". Returns whether it is an instruction.
bool reads_instruction(const std::string& line, Instruction& to) {
  const size_t open = line.find("/*"), close = line.find("*/"), end = line.find(" ;");
  if (open == std::string::npos || close == std::string::npos || end == std::string::npos || line.compare(open + 2, 2, " 0") == 0)
    return false;
  to.at = std::strtol(line.c_str() + open + 2, nullptr, 16);
  size_t begin = line.find_first_not_of(' ', close + 2);
  if (line[begin] == '@') begin = line.find_first_not_of(' ', line.find(' ', begin));  // a predicate
  const size_t words = std::min(line.find(' ', begin), end);
  to.name = line.substr(begin, words - begin);
  to.rest = line.substr(words, end - words);
  return true;
}

}  // namespace

int LoopCode::count(const std::string& name) const {
  return static_cast<int>(std::ranges::count_if(
      instructions, [&](const Instruction& i) { return i.name == name || (i.name.starts_with(name) && i.name[name.size()] == '.'); }));
}

std::vector<KernelCode> kernels_from(const std::string& resources, const std::string& sass) {
  std::map<std::pair<std::string, std::string>, KernelCode> all;
  std::string architecture, name, line;
  std::istringstream used(resources), code(sass);
  while (std::getline(used, line)) {
    if (names(line, "arch = ", '\n', architecture) || names(line, "Function ", ':', name)) continue;
    const int registers = number_after(line, " REG:");
    if (registers < 0) continue;
    all[{architecture, name}] = {architecture, readable(name), registers, number_after(line, " STACK:"), number_after(line, " LOCAL:"), {}};
  }
  KernelCode* kernel = nullptr;
  Instruction instruction;
  while (std::getline(code, line)) {
    if (names(line, "arch = ", '\n', architecture)) {
      kernel = nullptr;
    } else if (names(line, "Function : ", '\n', name)) {
      kernel = &all[{architecture, name}];
      kernel->instructions.clear();  // several object files may have the same kernel
    } else if (kernel && reads_instruction(line, instruction)) {
      kernel->instructions.push_back(instruction);
    }
  }
  std::vector<KernelCode> listed;
  for (auto& [of, each] : all) listed.push_back(std::move(each));
  return listed;
}

LoopCode smallest_loop_with(const KernelCode& kernel, const std::string& name) {
  const auto of_name = [&](const Instruction& i) { return i.name == name || i.name.starts_with(name + "."); };
  std::span<const Instruction> smallest;
  for (const Instruction& jump : kernel.instructions) {
    if (jump.name != "BRA") continue;
    const size_t hex = jump.rest.find("0x");
    if (hex == std::string::npos) continue;
    const long begin = std::strtol(jump.rest.c_str() + hex, nullptr, 16);
    if (begin >= jump.at) continue;
    const auto first = std::ranges::lower_bound(kernel.instructions, begin, {}, &Instruction::at);
    const std::span<const Instruction> loop(&*first, &jump + 1);
    if ((smallest.empty() || loop.size() < smallest.size()) && std::ranges::any_of(loop, of_name)) smallest = loop;
  }
  return {{smallest.begin(), smallest.end()}};
}

std::string cuobjdump_version() { return output_of("cuobjdump --version"); }

std::vector<KernelCode> kernels_in(const std::string& file) {
  return kernels_from(output_of("cuobjdump --dump-resource-usage '" + file + "'"), output_of("cuobjdump -sass '" + file + "'"));
}

}  // namespace spillway::test
