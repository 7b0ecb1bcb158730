import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import "./style.css";

if (import.meta.env.PROD) navigator.serviceWorker?.register("worker.js");
createRoot(document.getElementById("root")!).render(<StrictMode><App /></StrictMode>);
