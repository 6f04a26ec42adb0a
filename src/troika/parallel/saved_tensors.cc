#include "troika/parallel/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

namespace troika {
namespace {

thread_local const SavedTensorScope::MakeHooks* make_now = nullptr;

/// Everything but the hooks is the work of the engine that was there before, another library's perhaps.
class HookingEngine final : public torch::autograd::Engine {
 public:
  explicit HookingEngine(torch::autograd::Engine& before) : before_(before) {}
  ~HookingEngine() override { stop(); }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return before_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, c10::intrusive_ptr<torch::autograd::Node> root,
      torch::autograd::InputBuffer&& buffer) override {
    return before_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before_.make_anomaly_metadata();
  }
  std::vector<std::unique_ptr<torch::autograd::NodeCreationHook>> get_node_creation_hooks() override {
    return before_.get_node_creation_hooks();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return make_now != nullptr ? (*make_now)() : before_.get_default_saved_variable_hooks();
  }

 private:
  torch::autograd::Engine& before_;
};

std::atomic<HookingEngine*> installed = nullptr;

torch::autograd::Engine& installed_engine() { return *installed.load(); }

/// Again if another library has put its own engine in front meanwhile. Engines live as long as the process.
void install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::autograd::Engine& now = torch::autograd::Engine::get_default_engine();
  if (&now == installed.load()) return;
  installed = new HookingEngine(now);
  torch::autograd::set_default_engine_stub(installed_engine);
}

}  // namespace

SavedTensorScope::SavedTensorScope(MakeHooks make) : make_(std::move(make)), before_(make_now) {
  if (&torch::autograd::Engine::get_default_engine() != installed.load()) install();
  make_now = &make_;
}
SavedTensorScope::~SavedTensorScope() { make_now = before_; }

}  // namespace troika
