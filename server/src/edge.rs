//! The table of endpoints, and what is around all of them.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::error::ApiError;
use crate::state::{App, ServerConfig};
use crate::{admin, auth, chat, completions, fields, health, inference, inflight, metrics, models, page, tokens};

/// All endpoints. Every answer that is an error has OpenAI's error body.
pub fn router(app: App) -> Router {
    let router = Router::new()
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/metrics", get(metrics::scrape))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/inference/v1/generate", post(inference::inference))
        .route("/version", get(admin::version))
        .route("/server_info", get(admin::server_info))
        .route("/reset_prefix_cache", post(admin::reset_prefix_cache))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::one))
        .merge(page::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), auth::ask))
        .layer(from_fn_with_state(app.clone(), inflight::count))
        .layer(from_fn_with_state(app.http().clone(), metrics::observe));
    let router = match cors(app.config()) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.layer(CatchPanicLayer::custom(panicked)).with_state(app)
}

async fn not_found(request: Request) -> ApiError {
    ApiError::not_found(format!("there is no {}", request.uri().path()))
}

async fn wrong_method(request: Request) -> ApiError {
    let message = format!("{} is not answered at {}", request.method(), request.uri().path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// A handler's panic is its request's alone.
fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let what = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!("a handler panicked: {}", what.unwrap_or("without a message"));
    ApiError::internal("the server failed at this request; its log says more").into_response()
}

/// Which other origins' pages may use the server: without any named, none.
fn cors(config: &ServerConfig) -> Option<CorsLayer> {
    let origins = &config.allowed_origins;
    let layer = CorsLayer::new();
    let layer = if origins.is_empty() {
        return None;
    } else if origins.iter().any(|origin| origin == "*") {
        layer.allow_origin(Any)
    } else {
        layer.allow_origin(AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())))
    };
    let layer = layer
        .allow_methods([Method::GET, Method::POST])
        // `*` would be all but `Authorization`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([
            fields::IGNORED,
            HeaderName::from_static("x-request-id"),
            HeaderName::from_static("retry-after"),
        ]);
    Some(layer)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt;

    use super::*;

    async fn panics(how: axum::extract::Path<String>) -> Response {
        match how.as_str() {
            "text" => panic!("a text"),
            "format" => panic!("a {}", "format"),
            _ => std::panic::panic_any(7),
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_says_nothing_of_the_inside() {
        let router = Router::new().route("/{how}", get(panics)).layer(CatchPanicLayer::custom(panicked));
        for how in ["text", "format", "any"] {
            let request = Request::get(format!("/{how}")).body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let body = to_bytes(response.into_body(), 10_000).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"]["type"], "InternalServerError");
            assert!(!body.to_string().contains(how), "{body}");
        }
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error_and_others_go_on() {
        let app = App::new(ServerConfig { max_blocking: 1, ..ServerConfig::default() });
        for _ in 0..3 {
            let failed = app.blocking(|_| -> Result<(), ApiError> { panic!("a mistake") }).await;
            assert_eq!(failed.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(app.blocking(|_| Ok(7)).await, Ok(7));
    }
}
