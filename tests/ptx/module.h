// Splits the PTX text of a module into its functions, variables and statements (PTX ISA 9.0, chapters 4 and 5). Nothing is decoded here.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

enum class Space : std::uint8_t { generic, global, shared, local, param, constant };

/// A variable, a parameter of a kernel, or an array of these.
struct Variable {
  std::string name;
  Space space = Space::global;
  std::size_t bytes = 0, align = 1;  // bytes: 0 if the extent is open, as that of dynamic shared memory
  std::vector<std::uint8_t> initial;
};

/// An instruction, a directive, a label ("name:") or a brace, without its semicolon.
struct Statement {
  std::string text;
  int line = 0;         // in the module's text, from 1
  int source_line = 0;  // in the .cu or header file, if it was compiled with -lineinfo; else 0
  int source_file = 0;
};

struct Function {
  std::string name;
  bool is_kernel = false;
  std::vector<Variable> parameters, results;
  std::string_view body;  // in Module::text, between the braces
  int body_line = 0;
  unsigned most_threads = 1024;  // from .maxntid
};

struct Module {
  std::map<std::string, Function> functions;
  std::map<std::string, Variable> variables;
  std::map<int, std::string> files;  // numbered by .file
  std::unique_ptr<const std::string> text;
};

/// Throws std::runtime_error, which names the line, if the text is not PTX as nvcc writes it.
Module parse_module(std::string_view text);
/// Splits a function's body.
std::vector<Statement> statements_of(const Function& function);

/// Splits at `separator` outside brackets and trims the parts.
std::vector<std::string> split(std::string_view text, char separator);
std::string trimmed(std::string_view text);
/// Parses a declaration such as ".shared .align 8 .b8 name[4][8]".
Variable parse_variable(std::string_view text);
/// Returns whether the text is a literal number, and its bits.
bool parse_number(std::string_view text, std::uint64_t& bits);

}  // namespace ptx
