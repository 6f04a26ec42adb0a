// Who keeps what autograd saves for backward: torch's hooks for saved tensors, which its C++ interface has no
// way to set. An engine that stands before torch's own gives them out; it computes nothing itself.
// Threading: a scope is of its thread and nests, the innermost one counts.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

namespace troika {

/// While there is one, each tensor that a new node of the graph would save is given to hooks of its own: they
/// are told it in call_pack_hook(), asked for it in call_unpack_hook(), and die when the node lets go of it.
class SavedTensorScope {
 public:
  using MakeHooks = std::function<std::unique_ptr<torch::autograd::SavedVariableHooks>()>;
  explicit SavedTensorScope(MakeHooks make);
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
  ~SavedTensorScope();

 private:
  MakeHooks make_;
  const MakeHooks* before_;
};

}  // namespace troika
